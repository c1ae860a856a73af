import numpy as np
import numpy.typing as npt

from pgwire_codec._input import Messages
from pgwire_codec.tables import Boundaries

def boundaries(
    messages: Messages, begin: npt.NDArray[np.int64], commit: npt.NDArray[np.int64]
) -> Boundaries: ...
