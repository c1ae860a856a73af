from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import DecodedColumns, TupleTable
from pgwire_codec.types import ColumnType

def decode_columns(
    messages: Messages,
    rows: npt.NDArray[np.int64],
    body: npt.NDArray[np.int64],
    columns: int,
    which: str,
    wanted: Sequence[tuple[int, ColumnType]],
    *,
    unrepresentable: str = "raise",
    threads: int = 1,
) -> DecodedColumns: ...
def tuples(
    messages: Messages,
    rows: npt.NDArray[np.int64],
    body: npt.NDArray[np.int64],
    columns: int,
) -> tuple[TupleTable, TupleTable]: ...
