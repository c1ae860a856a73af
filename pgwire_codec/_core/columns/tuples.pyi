import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import TupleTable

def tuples(
    messages: Messages,
    rows: npt.NDArray[np.int64],
    body: npt.NDArray[np.int64],
    columns: int,
) -> tuple[TupleTable, TupleTable]: ...
