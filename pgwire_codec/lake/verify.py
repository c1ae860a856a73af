"""verify: the files of a lake's tables, each read as a whole, and compared with what names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import TableError
from pgwire_codec.lake.damage import DamagedFileError, reading
from pgwire_codec.lake.data_files import Bounds
from pgwire_codec.lake.folder import open_folder
from pgwire_codec.lake.lakehouse import ICEBERG, Lake
from pgwire_codec.lake.table_files import DataFile, TableFiles
from pgwire_codec.lake.tables.delta import delta_data_file
from pgwire_codec.lake.tables.delta_log import (
    LAST_CHECKPOINT,
    LOG,
    DeltaState,
    checkpoints,
    commit_numbers,
    commit_path,
    crc32_of,
    last_checkpoint,
    parse_commit,
)
from pgwire_codec.lake.tables.iceberg import IcebergTarget
from pgwire_codec.lake.tables.parquet import COMMITS, parse_commit_record
from pgwire_codec.protocol.quoting import quote_spark_identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Damage", "LakeVerification", "verify"]


def __dir__() -> list[str]:
    return __all__


_DATA: Final = ".parquet"


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of a file.

    Attributes
    ----------
    table : str
        Folder of the table in the lake.
    file : str
        Path of the file in that folder.
    text : str
        The damage.
    """

    table: str
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.table}: {self.text}"


@dataclass(frozen=True, slots=True)
class LakeVerification:
    """Result of :func:`verify`.

    Attributes
    ----------
    tables, files, bytes : int
        Numbers of tables, of the files that their newest versions need, and of these files' bytes.
    damage : tuple of Damage
        Empty when the lake is sound.
    """

    tables: int
    files: int
    bytes: int
    damage: tuple[Damage, ...]


def verify(
    target: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LakeVerification:
    """Read the files that the newest versions of a lake's tables need, and check them.

    Of a Delta table, these are all commits, checkpoints, data files and deletion vectors. Data
    files and commits of the mirror are compared with their checksums. Of other data files, each
    page is read, and rows and bounds are compared with those in the commit. Of an Iceberg table,
    these are data files and deletion vectors. Nothing is changed.

    Parameters
    ----------
    target : str
        ``delta:LOCATION`` or ``parquet:LOCATION``, the folder of the lake or of a table; or
        ``iceberg:CATALOG``, with or without namespaces.
    storage_options : mapping, optional
        As for ``deltalake.DeltaTable``.
    spark : pyspark.sql.SparkSession, optional
        Session that has the catalog of Iceberg tables.
    progress : callable, optional
        Called after each table, with the number of tables that were read and that there are.

    Raises
    ------
    OptionError
        For the target of an Iceberg catalog, without a session that has it.
    TableError
        When the folder has no tables.
    """
    lake = Lake.parse(target, storage_options, spark)
    found = _Findings()
    checks = _iceberg_checks(lake) if lake.format == ICEBERG else _folder_checks(lake, found)
    if not checks and not found.damage:
        raise TableError(f"{target} has no tables", hint="Name the target that a mirror has.")
    for number, check in enumerate(checks, 1):
        check(found)
        if progress is not None:
            progress(number, len(checks))
    return LakeVerification(len(checks), found.files, found.bytes, tuple(found.damage))


@dataclass(slots=True)
class _Findings:
    files: int = 0
    bytes: int = 0
    damage: list[Damage] = field(default_factory=list)

    @contextmanager
    def of(self, files: TableFiles, path: str, kind: str) -> Iterator[None]:
        """Record the damage of a file that the ``with`` block reads."""
        self.files += 1
        try:
            with reading(files.folder, path, kind):
                yield
        except DamagedFileError as error:
            self.damage.append(Damage(files.name, error.path, error.primary))
        except TableError as error:
            self.damage.append(Damage(files.name, path, error.primary))


_Check: TypeAlias = "Callable[[_Findings], None]"


def _folder_checks(lake: Lake, found: _Findings) -> list[_Check]:
    """Return the checks of the tables below a folder; record data files without a table."""
    sizes = open_folder(lake.location, lake.storage_options).sizes()
    kinds: dict[str, Callable[[TableFiles, Mapping[str, int], _Findings], None]] = {}
    for path in sizes:
        folders = path.split("/")[:-1]
        for name, kind in ((LOG, _check_delta), (COMMITS, _check_parquet)):
            if name in folders:
                kinds["/".join(folders[: folders.index(name)])] = kind
    for path in sorted(sizes):
        if path.endswith(_DATA) and not any(_is_in(path, table) for table in kinds):
            table, _, name = path.rpartition("/")
            found.damage.append(Damage(table, name, f"no log of a table names {path}"))
    checks: list[_Check] = []
    for table, check in sorted(kinds.items()):
        uri = f"{lake.location}/{table}" if table else lake.location
        files = TableFiles(table, uri, storage_options=lake.storage_options)
        inside = {
            path[len(table) :].lstrip("/"): size
            for path, size in sizes.items()
            if _is_in(path, table)
        }
        checks.append(partial(check, files, inside))
    return checks


def _iceberg_checks(lake: Lake) -> list[_Check]:
    """Return the checks of the tables of a catalog, or of namespaces in it."""
    spark: Any = lake.spark
    catalog, *names = lake.location.split(".")
    spaces = [names]
    tables = []
    for space in spaces:  # to which those inside are added
        inside = ".".join(map(quote_spark_identifier, [catalog, *space]))
        spaces += [row[0].split(".") for row in spark.sql(f"SHOW NAMESPACES IN {inside}").collect()]
        for row in spark.sql(f"SHOW TABLES IN {inside}").collect() if space else ():
            tables.append(f"{inside}.{quote_spark_identifier(row['tableName'])}")
    return [partial(_check_iceberg, spark, table) for table in tables]


def _check_iceberg(spark: SparkSession, table: str, found: _Findings) -> None:
    try:
        target = IcebergTarget(spark, table, "pgwire_codec")
        files, schema = target.files, target.schema
    except TableError as error:
        found.damage.append(Damage(table, "metadata", error.primary))
        return
    for file in files.files:
        found.bytes += file.size
        with found.of(files, file.path, "data file"):
            _check_data_file(files, file, is_exact=not file.deleted, schema=schema)


def _is_in(path: str, table: str) -> bool:
    return not table or path.startswith(f"{table}/")


def _check_delta(files: TableFiles, sizes: Mapping[str, int], found: _Findings) -> None:
    state = _check_log(files, [path.rpartition("/")[2] for path in sizes if _is_log(path)], found)
    found.bytes += sum(size for path, size in sizes.items() if _is_log(path))
    for path, action in state.files.items():
        with found.of(files, path, "data file"):
            file = delta_data_file(files.name, path, action)
            found.bytes += sizes.get(path, 0)
            _check_data_file(files, file, is_exact=not action.get("deletionVector"))


def _is_log(path: str) -> bool:
    return path.startswith(f"{LOG}/")


def _check_log(files: TableFiles, names: list[str], found: _Findings) -> DeltaState:
    """Check commits and checkpoints; return the newest state that they have."""
    folder = files.folder
    named = None
    with found.of(files, LAST_CHECKPOINT, "file"):
        named = last_checkpoint(folder)
        if named is None and checkpoints(names):
            raise FileNotFoundError
    states: dict[int, DeltaState] = {}
    known = {checkpoint.version: checkpoint for checkpoint in checkpoints(names)}
    if named is not None:
        known[named.version] = named
    for version, checkpoint in known.items():
        with found.of(files, checkpoint.paths[0], "checkpoint"):
            states[version] = checkpoint.read(folder)
    commits = commit_numbers(names)
    state = DeltaState()
    if commits[:1] != [0] and states:
        state = _copy(states[min(states)])
    first, last = state.version + 1, max([*commits, *known], default=-1)
    for number in (number for number in commits if number < first):
        with found.of(files, commit_path(number), "commit"):
            parse_commit(folder.read(commit_path(number)), number)
    for number in range(first, last + 1):
        with found.of(files, commit_path(number), "commit"):
            actions = parse_commit(folder.read(commit_path(number)), number)
            if state.version == number - 1:
                state.apply(actions)
                state.version = number
        if number not in states:
            continue
        if state.version != number:
            state = _copy(states[number])
        with found.of(files, known[number].paths[0], "checkpoint"):
            _compare(states[number], state)
    if state.version < last:
        found.damage.append(
            Damage(files.name, LOG, f"the log of {files.uri} can be read up to {state.version}")
        )
    return state


def _copy(state: DeltaState) -> DeltaState:
    return DeltaState(
        state.version, state.protocol, state.metadata, dict(state.files), dict(state.transactions)
    )


def _compare(checkpoint: DeltaState, state: DeltaState) -> None:
    """Raise ``ValueError`` if a checkpoint has another state than the commits before it."""
    if checkpoint.transactions != state.transactions:
        raise ValueError("it has other positions than the commits before it")
    if checkpoint.files.keys() != state.files.keys():
        raise ValueError("it has other files than the commits before it")
    for path, file in checkpoint.files.items():
        for name in ("size", "stats", "deletionVector", "tags"):
            if (file.get(name) or None) != (state.files[path].get(name) or None):
                raise ValueError(f"it has another {name} of {path} than the commits before it")
    for name in ("schemaString", "configuration", "partitionColumns"):
        if checkpoint.metadata.get(name) != state.metadata.get(name):
            raise ValueError(f"it has another {name} than the commits before it")


def _check_data_file(
    files: TableFiles, file: DataFile, *, is_exact: bool = True, schema: pa.Schema | None = None
) -> None:
    """Check a data file and its vector. Raises ``TableError`` or ``ValueError``.

    The numbers of nulls are exact or not, and the columns are by default those of the file.
    """
    with files.open(file) as opened:
        rows = opened.parquet.metadata.num_rows
        if file.checksum is None:
            bounds = file.bounds
            nulls = dict.fromkeys(bounds.nulls, 0)
            for _, group in opened.groups(schema or opened.parquet.schema_arrow):
                for name in nulls.keys() & {*group.column_names}:
                    column = group.column(name)
                    nulls[name] += column.null_count
                    _check_bounds(name, column, bounds)
            for name, count in nulls.items():
                if count != bounds.nulls[name] and (is_exact or not bounds.nulls[name]):
                    raise ValueError(f"column {name} has {count} nulls, not {bounds.nulls[name]}")
    if file.checksum is not None:
        crc = crc32_of(files.folder, file.path)
        if int(crc, 16) != file.checksum.whole:
            raise ValueError("it does not match its checksum")
    positions = files.deleted_positions(file)
    if len(positions) and positions[-1] >= rows:
        raise ValueError(f"its deletion vector has row {positions[-1]} of {rows}")


def _check_bounds(name: str, column: pa.ChunkedArray, bounds: Bounds) -> None:
    lower, upper = bounds.lower.get(name), bounds.upper.get(name)
    kinds = {int: pa.types.is_integer, str: pa.types.is_string}
    if column.null_count == len(column) or type(lower) is not type(upper):
        return
    if (is_kind := kinds.get(type(lower))) is None or not is_kind(column.type):
        return
    lowest, highest = pc.min_max(column).as_py().values()
    if lowest < lower or highest > upper:
        raise ValueError(f"column {name} has values that its bounds do not contain")


def _check_parquet(files: TableFiles, sizes: Mapping[str, int], found: _Findings) -> None:
    for path in sorted(sizes):
        found.bytes += sizes[path]
        if path.startswith(f"{COMMITS}/") and path.endswith(".json"):
            with found.of(files, path, "commit"):
                record = parse_commit_record(files.folder.read(path))
                staged = {f"{COMMITS}/staged/{name}": to for name, to in record["files"].items()}
                for name, place in staged.items():
                    if name not in sizes and place not in sizes:
                        raise ValueError(f"its file {place} is missing")
        elif path.endswith(_DATA) and not path.startswith("_"):
            with found.of(files, path, "data file"):
                _check_data_file(files, DataFile(path, sizes[path], None, Bounds()))
