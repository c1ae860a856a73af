"""Python process of an executor, which runs one task after the other."""

from __future__ import annotations

import gc
import itertools
import sys
from typing import Final
from zipimport import zipimporter

_TASKS: Final = itertools.count()


def begin_task() -> None:
    """Spare later tasks of this process most of what Spark does around each: 0.2 s of CPU time.

    Before a task, Spark has the directory of each zip file with modules read again, such as its
    own. After it, garbage is collected among all that is imported.
    """
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):  # whose file does not change
            vars(finder)["invalidate_caches"] = _nothing
    if next(_TASKS) == 1:  # the first task imports what it needs
        gc.freeze()


def _nothing() -> None:
    pass
