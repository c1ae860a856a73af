import numpy as np
import numpy.typing as npt

from pgwire_codec._input import Messages
from pgwire_codec.tables import TupleTable

def tuples(
    messages: Messages,
    rows: npt.NDArray[np.int64],
    body: npt.NDArray[np.int64],
    columns: int,
) -> tuple[TupleTable, TupleTable]: ...
