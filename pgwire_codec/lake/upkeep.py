"""Upkeep of tables: few and large data files, without many deleted rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.rewriting import rewrite
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.status import LOGGER
from pgwire_codec.lake.table_files import DataFile
from pgwire_codec.lake.tables.target import CommitConflict, Target
from pgwire_codec.lake.task_errors import ends_all, error_of
from pgwire_codec.protocol.messages import Relation

#: Bytes of a file that is written again with others, and number of them from which on they are.
_SMALL_BYTES: Final = 16 << 20
_SMALL_FILES: Final = 50

#: Share of a file's rows that may be deleted.
_DELETED: Final = 0.2


def keep_up(lake: Lake, runner: Runner, relations: Sequence[Relation]) -> None:
    """Write files of some tables again, after a turn that changed them.

    Raises ``PgwireError`` for an error that concerns all tables, such as a full disk. After another
    one, the table remains as it is.
    """
    for relation in relations:
        target = lake.open(relation)
        if target.schema is not None and target.deletes:
            _keep_up(target, runner)


def _keep_up(target: Target, runner: Runner) -> None:
    chosen = files_to_rewrite(target.files.files)
    if not chosen:
        return
    try:
        rewrite(target, runner, chosen=chosen)
    except CommitConflict as conflict:
        LOGGER.info("files of %s are not written again: %s", target.name, conflict)
    except Exception as error:
        found = error_of(error, target.name)
        if ends_all(found):
            raise found from error
        LOGGER.warning("files of %s are not written again: %s", target.name, found)


def files_to_rewrite(files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files that are to be written again: many small ones, and those with few rows."""
    small = [file for file in files if file.size < _SMALL_BYTES]
    large = [file for file in files if file.size >= _SMALL_BYTES]
    worn = [file for file in large if file.rows and file.deleted > _DELETED * file.rows]
    return [*worn, *small] if len(small) > _SMALL_FILES else worn
