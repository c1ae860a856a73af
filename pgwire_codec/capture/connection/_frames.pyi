import numpy as np
from numpy.typing import NDArray

from pgwire_codec.capture.connection.frames import Taken

class FrameBuffer:
    count: int
    nbytes: int
    control: bytes
    def __init__(
        self,
        connection: int,
        socket: int,
        get_copy_data: int,
        consume_input: int,
        free_memory: int,
    ) -> None: ...
    def read(self, max_messages: int, max_bytes: int, stop_lsn: int, seconds: float) -> int: ...
    def since(self, first: int) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]: ...
    def take(self) -> Taken: ...
