"""One column of a batch of changes, decoded when its values are first asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.export import c_schema, to_pyarrow
from pgwire_codec.arrow.layout import ArrowBuffers
from pgwire_codec.changes.plan import Plans
from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.tables import VALUE, ScannedArray
from pgwire_codec.codec.values import Decoded, ValueProblem
from pgwire_codec.errors import DecodeError, ErrorCode
from pgwire_codec.options import DecoderOptions
from pgwire_codec.types import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_BYTES: Final = 60  # of a value in an error
_FEW: Final = 64  # rows that are decoded after one that does not decode


class Decoding:
    """How values are decoded: by which implementation, under which options.

    Attributes
    ----------
    codec : Codec
        The implementation.
    options : DecoderOptions
        The options.
    plans : Plans
        What batches of the same table have in common.
    """

    def __init__(self, codec: Codec, options: DecoderOptions) -> None:
        self.codec = codec
        self.options = options
        self.plans = Plans(options)

    @staticmethod
    def of(codec: Codec, options: DecoderOptions) -> Decoding:
        """Return the same object for the same options, so that plans are made once."""
        return _decoding(codec, options)

    def with_options(self, **options: Any) -> Decoding:
        """Return the same under other values of some options."""
        return Decoding.of(self.codec, replace(self.options, **options))


@lru_cache(maxsize=16)
def _decoding(codec: Codec, options: DecoderOptions) -> Decoding:
    return Decoding(codec, options)


def capsules(
    codec: Codec, array: ArrowBuffers, schema: Any, requested_schema: object
) -> tuple[object, object]:
    """Return the capsules of the Arrow PyCapsule interface.

    ``schema`` is the array's nanoarrow.c_schema.CSchema.
    """
    if requested_schema is not None:
        raise NotImplementedError("requested_schema")
    return schema.__arrow_c_schema__(), codec.array_capsule(array)


class Column:
    """One column of the old or the new tuples of a batch.

    Attributes
    ----------
    name : str
        The column's name.
    type : ColumnType
        Its PostgreSQL and its Arrow type.
    state : numpy.ndarray of uint8, rows
        0 NULL, 1 value, 2 unchanged TOAST, 3 not sent.
    offsets : numpy.ndarray of int64, rows
        Where in ``buffer`` a value starts; meaningless unless ``state`` is 1.
    lengths : numpy.ndarray of int32, rows
        A value's length in bytes; 0 is an empty value, not NULL.
    formats : numpy.ndarray of uint8, rows
        A value's wire form: 0 text, 1 binary.
    buffer : numpy.ndarray of uint8
        The bytes of the messages themselves: a read-only view, nothing is copied.

    Notes
    -----
    Values are decoded when first asked for. Then bytes that are not a value of the type, and under
    ``unrepresentable="raise"`` values that the Arrow type cannot hold, raise ``DecodeError`` with
    the message's index and the byte's offset in it.
    """

    __slots__ = (
        "_decoded",
        "_decoding",
        "_rows",
        "_source",
        "buffer",
        "formats",
        "lengths",
        "name",
        "offsets",
        "state",
        "type",
    )

    def __init__(
        self,
        name: str,
        column_type: ColumnType,
        state: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int32],
        formats: npt.NDArray[np.uint8],
        source: ScannedArray,
        rows: npt.NDArray[np.int64],
        decoding: Decoding,
    ) -> None:
        self.name = name
        self.type = column_type
        self.state = state
        self.offsets = offsets
        self.lengths = lengths
        self.formats = formats
        self.buffer = source.messages.data
        self._source = source
        self._rows = rows
        self._decoding = decoding
        self._decoded: Decoded | None = None

    def __len__(self) -> int:
        return len(self.state)

    def __repr__(self) -> str:
        return f"<Column {self.name} {self.type.pg.name}, {len(self)} rows>"

    def decode(self) -> Decoded:
        """Decode the values into Arrow-shaped buffers."""
        if self._decoded is None:
            try:
                self._decoded = self._values(0, len(self))
            except ValueProblem as problem:
                raise self._placed(problem, problem.row) from None
        return self._decoded

    def errors(self) -> Iterator[tuple[int, DecodeError]]:
        """Yield the rows whose values do not decode, with the error of each."""
        start, stop = 0, len(self)
        while start < len(self) and self._decoded is None:
            try:
                decoded = self._values(start, stop)
            except ValueProblem as problem:
                row = start + problem.row
                yield row, self._placed(problem, row)
                # Few rows, for the next one may be bad, too.
                start, stop = row + 1, row + 1 + _FEW
            else:
                if stop - start == len(self):
                    self._decoded = decoded
                start, stop = stop, stop + 2 * (stop - start)

    def _values(self, start: int, stop: int) -> Decoded:
        return self._decoding.codec.decode_values(
            self.type,
            self.buffer,
            self.offsets[start:stop],
            self.lengths[start:stop],
            self.state[start:stop],
            self.formats[start:stop],
            unrepresentable=self._decoding.options.unrepresentable,
        )

    def to_pylist(self) -> list[Any]:
        """Return Python values; None for what is NULL, unchanged or not sent (see ``state``)."""
        from pgwire_codec.arrow.values import to_pylist

        return to_pylist(self.decode().array)

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return a typed array of one element a row.

        If a row has no value, the array is a ``numpy.ma.MaskedArray``, or has NaT (datetime64) or
        None (object) there; ``state`` has the reason.
        """
        from pgwire_codec.arrow.values import to_numpy

        return to_numpy(self.decode().array)

    def to_arrow(self) -> pa.Array:
        """Return a ``pyarrow.Array``; null for what is NULL, unchanged or not sent."""
        return to_pyarrow(self.decode().array)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Export by the Arrow PyCapsule interface."""
        array = self.decode().array
        return capsules(self._decoding.codec, array, c_schema(array), requested_schema)

    def shown(self, row: int) -> str | None:
        """Return the beginning of a row's value as the server sent it, for people.

        None if the row has no value.
        """
        if self.state[row] != VALUE:
            return None
        start, length = int(self.offsets[row]), int(self.lengths[row])
        raw = self.buffer[start : start + min(length, _SHOWN_BYTES)].tobytes()
        more = "" if length <= _SHOWN_BYTES else "..."
        if self.formats[row]:
            return f"0x{raw.hex()}{more}"
        return repr(raw.decode("utf-8", "replace") + more)

    def _placed(self, problem: ValueProblem, row: int) -> DecodeError:
        index = int(self._rows[row])
        in_message = int(self.offsets[row] - self._source.messages.offsets[index])
        is_unrepresentable = problem.code == ErrorCode.UNREPRESENTABLE
        value = f", value {self.shown(row)}" if is_unrepresentable else ""
        return DecodeError(
            problem.code,
            offset=in_message + problem.offset,
            expected=problem.expected,
            message_index=self._source.base + index,
            context=f"column {self.name} ({self.type.pg.name}){value}",
            hint=problem.hint,
        )
