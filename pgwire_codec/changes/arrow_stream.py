"""Changes as one Arrow stream, which polars, DuckDB, pandas and pyarrow take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgwire_codec.arrow.export import c_schema, import_pyarrow
from pgwire_codec.arrow.layout import ArrowBuffers
from pgwire_codec.codec.interface import Codec
from pgwire_codec.options import DecoderOptions

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa
    from nanoarrow.c_array_stream import CArrayStream


class ArrowStream(ABC):
    """Changes that are exported as one stream of the Arrow PyCapsule interface."""

    __slots__ = ()

    @abstractmethod
    def _stream(self, *, for_polars: bool = False) -> Any:
        """Return an object that exports the stream, with types that polars takes if it must."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the columns of ``to_arrow`` by the Arrow PyCapsule interface."""
        if requested_schema is not None:
            raise NotImplementedError("requested_schema")
        return self._stream().__arrow_c_stream__()

    def to_polars(self) -> polars.DataFrame:
        """Return a ``polars.DataFrame`` with the columns of ``to_arrow``.

        polars has no intervals of months, days and a time. So they are strings, unless the option
        ``intervals`` of the decoder makes them durations.
        """
        import polars

        return polars.DataFrame(self._stream(for_polars=True))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a ``pandas.DataFrame`` with the columns of ``to_arrow``.

        Needs the extra ``arrow``. Columns have Arrow's types (``pandas.ArrowDtype``). So integers
        with NULL stay integers, and NULL is not NaN. Columns of intervals and UUIDs, which have no
        such type, have objects: ``pandas.DateOffset`` and :class:`uuid.UUID`.
        """
        table = import_pyarrow().table(self._stream())
        frame: pandas.DataFrame = table.to_pandas(types_mapper=_pandas_type)
        return frame


def _pandas_type(kind: pa.DataType) -> pandas.ArrowDtype | None:
    """Return pandas' type of an Arrow type, or None if its columns have objects."""
    import pandas

    found = pandas.ArrowDtype(kind)
    try:
        _ = found.type  # which pandas asks for, to print a column
    except NotImplementedError:
        return None
    return found


class _Array:
    """A struct that is exported by the Arrow PyCapsule interface."""

    def __init__(self, codec: Codec, struct: ArrowBuffers) -> None:
        self._codec = codec
        self._struct = struct

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema = c_schema(self._struct).__arrow_c_schema__()
        return schema, self._codec.array_capsule(self._struct)


def to_stream(codec: Codec, structs: Sequence[ArrowBuffers]) -> CArrayStream:
    """Return structs of one type as a stream of nanoarrow's."""
    import nanoarrow
    from nanoarrow.c_array_stream import CArrayStream

    arrays = [nanoarrow.c_array(_Array(codec, struct)) for struct in structs]
    return CArrayStream.from_c_arrays(arrays, c_schema(structs[0]), validate=False)


def polars_options(options: DecoderOptions) -> dict[str, Any]:
    """Return the values of options that differ for polars, which has no month_day_nano."""
    return {"intervals": "string"} if options.intervals == "month_day_nano" else {}
