from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages

def join_messages(messages: Iterable[object]) -> Messages: ...
def join_views(
    views: npt.NDArray[np.int32], buffers: Sequence[npt.NDArray[np.uint8]]
) -> Messages: ...
