"""ComparedColumns: the columns that are compared, in the types in which both sides have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.identity import key_columns
from pgwire_codec.lake.table_schema import TableSchema, widest
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.spark.arrow_types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

#: Columns with the hash of the key and that of the whole row.
KEY: Final = "key"
ROW: Final = "row"


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """Columns of the server, and the hashes of rows.

    A hash is Spark's ``xxhash64`` of 64 bits. It ignores NULL, so whether a value is NULL is hashed
    beside it.

    Attributes
    ----------
    types : dict of str to DataType
        Types in which the columns are compared.
    keys : tuple of str
        Columns that identify a row; all of them without a key.
    has_keys : bool
    """

    types: dict[str, DataType]
    keys: tuple[str, ...]
    has_keys: bool

    @classmethod
    def of(
        cls,
        relation: Relation,
        server: TableSchema,
        held: Mapping[str, DataType],
        masked: Collection[str] = (),
    ) -> ComparedColumns:
        """Return the columns of a server's table and a target that has the columns ``held``.

        If the types differ, the wider of two integers, floats or decimals is used, or else text.
        Columns that are ``masked`` are left out. If they identify rows, the others do.

        Raises ``TableError`` if all are masked.
        """
        types = {
            each.name: _common(each.dataType, field.type, held.get(each.name))
            for each, field in zip(spark_schema(server.arrow), server.arrow, strict=True)
            if each.name not in masked
        }
        if not types:
            raise TableError("all columns have a mask, so rows cannot be compared")
        keys = key_columns(relation)
        if keys is not None and not types.keys() >= set(keys):
            keys = None
        return cls(types, tuple(types if keys is None else keys), keys is not None)

    @property
    def numbers(self) -> dict[str, str]:
        """Names of the columns in the compared rows, by their own names."""
        return {name: f"c{number}" for number, name in enumerate(self.types)}

    def rows(self, found: DataFrame) -> DataFrame:
        """Return rows with the columns under :attr:`numbers`. Missing ones are null."""
        from pyspark.sql import functions

        places = {name: f"p{place}" for place, name in enumerate(found.columns)}
        return found.toDF(*places.values()).select(
            *(
                (functions.col(places[name]) if name in places else functions.lit(None))
                .cast(kind)
                .alias(self.numbers[name])
                for name, kind in self.types.items()
            )
        )

    def key_hash(self) -> Column:
        """Return the hash of the key of :meth:`rows`."""
        return _hash({self.numbers[name]: self.types[name] for name in self.keys})

    def row_hash(self) -> Column:
        """Return the hash of :meth:`rows`."""
        return _hash({self.numbers[name]: kind for name, kind in self.types.items()})


def _hash(columns: Mapping[str, DataType]) -> Column:
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType

    parts = []
    for name, kind in columns.items():
        column = functions.col(name)
        parts += [column, functions.isnull(column)]
        if isinstance(kind, ArrayType):
            parts.append(functions.transform(column, functions.isnull))
    return functions.xxhash64(*parts)


def _common(server: DataType, kind: pa.DataType, held: DataType | None) -> DataType:
    """Return the type for values of the server, and of the target in the type ``held``."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType

    if held is None or held == server:
        return server
    common: Any = widest({kind, to_arrow_type(held)})
    if common is None:
        return StringType()
    return spark_schema(pa.schema([("c", common)]))["c"].dataType
