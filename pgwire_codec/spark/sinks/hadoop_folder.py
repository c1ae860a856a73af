"""HadoopFolder: small files of a folder, in any file system of Hadoop that the session has."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from pgwire_codec.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFolder:
    """Folder, which need not exist.

    Parameters
    ----------
    spark : SparkSession
        Its settings have the credentials. It must not be one of Spark Connect.
    path : str
        Path or URI.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise OptionError(
                "Parquet targets need a session that is not one of Spark Connect",
                hint="Their commits are written by the driver, with Hadoop's file systems.",
            )
        session: Any = spark
        self._hadoop = session._jvm.org.apache.hadoop.fs
        self._path = self._hadoop.Path(path)
        configuration = session._jsparkSession.sessionState().newHadoopConf()
        self._files = self._path.getFileSystem(configuration)
        path_of_system = self._files.makeQualified(self._path).toUri()
        self._context = self._hadoop.FileContext.getFileContext(path_of_system, configuration)
        # Java's values of an enumeration, and arrays, have no literals.
        self._overwrite = session.sparkContext._gateway.new_array(self._hadoop.Options.Rename, 1)
        self._overwrite[0] = self._hadoop.Options.Rename.OVERWRITE

    def names(self) -> list[str]:
        """Return the names of the files, in order."""
        if not self._files.exists(self._path):
            return []
        found = [each.getPath().getName() for each in self._files.listStatus(self._path)]
        return sorted(name for name in found if not name.startswith("."))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        stream = self._files.open(self._of(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def open(self, name: str) -> BinaryIO:
        """Open a file, of which only the parts that are read come from the file system."""
        path = self._of(name)
        size = self._files.getFileStatus(path).getLen()
        return cast("BinaryIO", _HadoopFile(self._files.open(path), size))

    def write(self, name: str, content: bytes) -> None:
        """Write a file: it has its former content, or the new one."""
        written = self._of(f".{name}.new")
        stream = self._files.create(written, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        self._context.rename(
            self._files.makeQualified(written),
            self._files.makeQualified(self._of(name)),
            self._overwrite,
        )

    def remove(self, pattern: str) -> None:
        """Remove the files whose paths in the folder match a pattern of Hadoop (a glob)."""
        for each in self._files.globStatus(self._of(pattern)) or ():
            self._files.delete(each.getPath(), False)

    def _of(self, name: str) -> Any:
        return self._hadoop.Path(self._path, name)


class _HadoopFile(io.RawIOBase):
    """File of Hadoop, which Java's ``FSDataInputStream`` reads."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream = stream
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._stream.getPos())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._stream.seek(begin + offset)
        return begin + offset

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = self._size
        return bytes(self._stream.readNBytes(min(size, self._size - self.tell())))

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
