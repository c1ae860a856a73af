import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import Boundaries, MessageTable

def scan(messages: Messages, *, streaming: bool = False, skip: bool = False) -> MessageTable: ...
def boundaries(
    messages: Messages, begin: npt.NDArray[np.int64], commit: npt.NDArray[np.int64]
) -> Boundaries: ...
