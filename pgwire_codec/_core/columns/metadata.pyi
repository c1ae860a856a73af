from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers

def name_lists(
    rows_by_name: Sequence[npt.NDArray[np.int64]], names: Sequence[str], rows: int
) -> ArrowBuffers: ...
def strings_at(values: npt.NDArray[np.object_], rows: npt.NDArray[np.int64]) -> ArrowBuffers: ...
def transaction_columns(
    transaction: npt.NDArray[np.int64],
    xid: npt.NDArray[np.uint32],
    commit_lsn: npt.NDArray[np.uint64],
    commit_time: npt.NDArray[np.datetime64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
