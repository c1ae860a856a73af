import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.values import Decoded
from pgwire_codec.types import ColumnType

def decode_values(
    column: ColumnType,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
    state: npt.NDArray[np.uint8],
    formats: npt.NDArray[np.uint8],
    *,
    unrepresentable: str = "raise",
) -> Decoded: ...
