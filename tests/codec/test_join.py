"""Messages that lie apart, copied into one array by either implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.codec.message_array import Messages, to_message_arrays
from tests.support.implementations import Implementation, implementation


def content(messages: Messages) -> list[bytes]:
    assert messages.data.dtype == np.uint8
    assert not messages.data.flags.writeable
    assert messages.offsets.dtype == np.int64
    assert messages.offsets[0] == 0
    assert messages.offsets[-1] == len(messages.data)
    return [messages[index] for index in range(len(messages))]


class Bytes(bytes):
    pass


class Bytearray(bytearray):
    pass


def reversed_view(data: bytes) -> memoryview:
    return memoryview(data[::-1])[::-1]


def shown(array: Any) -> memoryview:
    return memoryview(array)


def by_columns(data: bytes) -> memoryview:
    """Two rows whose columns are stored one after the other: as C has it, these bytes."""
    rows = np.frombuffer(data + bytes(len(data) % 2), np.uint8).reshape(2, -1)
    return shown(np.asfortranarray(rows))


FORMS: list[Callable[[bytes], Any]] = [
    bytes,
    bytearray,
    memoryview,
    Bytes,
    Bytearray,
    lambda data: memoryview(memoryview(bytearray(data))),
    lambda data: memoryview(bytes(2) + data)[2:],
    lambda data: memoryview(b"".join(bytes([each, 0]) for each in data))[::2],
    reversed_view,
    by_columns,
    lambda data: shown(np.frombuffer(data + bytes(-len(data) % 4), "<u4")),
    lambda data: shown(np.array(len(data), "<u4")),
]

MESSAGE = st.builds(
    lambda form, data: form(data),
    st.sampled_from(FORMS),
    st.one_of(
        st.binary(max_size=40), st.builds(bytes, st.sampled_from([4095, 4096, 70_000, 200_000]))
    ),
)

CONTAINERS: list[Callable[[list[Any]], Any]] = [
    list,
    tuple,
    iter,
    lambda messages: (each for each in messages),
    lambda messages: dict(enumerate(messages)).values(),
]


@pytest.mark.differential
@given(messages=st.lists(MESSAGE), container=st.sampled_from(CONTAINERS))
def test_the_same_bytes(messages: list[Any], container: Callable[[list[Any]], Any]) -> None:
    for name in ("python", "cython"):
        joined = implementation(name).join_messages(container(messages))
        assert content(joined) == [memoryview(each).tobytes() for each in messages]


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 127, 128, 129, 1000, 20_000])
@pytest.mark.parametrize("container", CONTAINERS)
def test_many(codec: Implementation, count: int, container: Callable[[list[Any]], Any]) -> None:
    messages = [bytes([number % 256]) * (number % 50) for number in range(count)]
    assert content(codec.join_messages(container(messages))) == messages


def test_many_of_unknown_size(codec: Implementation) -> None:
    messages = [bytearray([number % 256] * (number % 50)) for number in range(20_000)]
    assert content(codec.join_messages(messages)) == messages


@pytest.mark.parametrize(
    "wrong",
    ["B", None, 66, [66], np.array([66], np.uint8), pa.py_buffer(b"B"), b"B"[0], bytes],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("container", CONTAINERS)
def test_not_a_message(
    codec: Implementation, wrong: object, container: Callable[[list[Any]], Any]
) -> None:
    with pytest.raises(TypeError) as raised:
        codec.join_messages(container([b"B", bytearray(b"C"), wrong, None]))
    assert str(raised.value).startswith("messages must be a sequence of bytes-likes, or")
    assert str(raised.value).endswith(f"; message 2 is {type(wrong).__name__}")


def test_a_released_view(codec: Implementation) -> None:
    released = memoryview(b"a")
    released.release()
    with pytest.raises(ValueError, match="released memoryview"):
        codec.join_messages([b"a", released])


def test_an_error_of_the_iterable_is_passed_on(codec: Implementation) -> None:
    def messages() -> Iterator[bytes]:
        yield b"a"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        codec.join_messages(messages())


def test_a_buffer_may_be_used_again_for_the_next_message(codec: Implementation) -> None:
    def messages() -> Iterator[bytearray]:
        buffer = bytearray()
        for number in range(200):
            buffer[:] = bytes([number]) * number
            yield buffer

    joined = codec.join_messages(messages())
    assert content(joined) == [bytes([number]) * number for number in range(200)]


def test_a_message_can_be_resized_afterwards(codec: Implementation) -> None:
    message = bytearray(b"abc")
    joined = codec.join_messages([message])
    message += bytes(100_000)  # BufferError if anything still had the old bytes
    assert content(joined) == [b"abc"]


def test_a_list_that_grows_meanwhile(codec: Implementation) -> None:
    """A finalizer, or another thread, may change the list at any time."""

    class Growing(bytes):
        def __buffer__(self, flags: int) -> memoryview:
            messages.extend([b"grown" * 1000] * 100)
            return memoryview(b"changed")

    messages: list[bytes] = [b"a", Growing(b"b"), b"c"]
    copied = content(codec.join_messages(messages))
    assert copied[0] == b"a"
    assert copied[2:] == messages[2:]


# Views.


def views_of(*rows: tuple[int, bytes] | tuple[int, int, int]) -> npt.NDArray[np.int32]:
    """Views: of length and bytes, or of length, buffer and offset."""
    raw = b""
    for row in rows:
        if len(row) == 2:
            raw += np.int32(row[0]).tobytes() + row[1].ljust(12, b"\0")
        else:
            raw += np.array([row[0], 0, *row[1:]], np.int32).tobytes()
    return np.frombuffer(raw, np.int32).reshape(-1, 4)


BUFFERS = [np.arange(50, dtype=np.uint8), np.zeros(0, np.uint8), np.full(13, 7, np.uint8)]


def test_views(codec: Implementation) -> None:
    short = [(0, b""), (12, b"abcdefghijkl"), (1, b"x")]
    views = views_of(*short, (13, 2, 0), (13, 0, 37), (50, 0, 0))
    assert content(codec.join_views(views, BUFFERS)) == [
        b"",
        b"abcdefghijkl",
        b"x",
        bytes([7]) * 13,
        bytes(range(37, 50)),
        bytes(range(50)),
    ]
    assert content(codec.join_views(views_of().reshape(0, 4), [])) == []


BIG = 2**31 - 1


@pytest.mark.parametrize(
    "wrong",
    [
        *[(-1, b"x"), (-(2**31), 0, 0), (51, 0, 0), (13, 0, 38), (13, 0, -1), (13, 0, BIG)],
        *[(BIG, 0, BIG), (13, 1, 0), (13, 3, 0), (13, -1, 0), (13, BIG, 0), (14, 2, 0)],
    ],
    ids=repr,
)
def test_views_outside_of_the_buffers(codec: Implementation, wrong: Any) -> None:
    with pytest.raises(ValueError, match="view of message 1 must lie within the array's buffers"):
        codec.join_views(views_of((1, b"x"), wrong), BUFFERS)


@pytest.mark.differential
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(-1, 12), st.binary(max_size=12)),
            st.tuples(st.integers(10, 52), st.integers(-1, 3), st.integers(-1, 52)),
        )
    )
)
def test_views_differential(rows: list[Any]) -> None:
    views = views_of(*rows).reshape(-1, 4)

    def outcome(name: str) -> list[bytes] | str:
        try:
            return content(implementation(name).join_views(views, BUFFERS))
        except ValueError as error:
            return str(error)

    assert outcome("cython") == outcome("python")


@given(
    st.lists(st.binary(max_size=30), max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_view_arrays(messages: list[bytes], start: int, length: int) -> None:
    sliced = pa.array(messages, pa.binary_view()).slice(min(start, len(messages)), length)
    for name in ("python", "cython"):
        (joined,) = to_message_arrays(sliced, implementation(name))
        assert content(joined) == sliced.to_pylist()
