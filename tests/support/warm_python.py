"""A Python that has imported what Spark's workers import, and forks for each start of one.

Spark starts a Python for each plan of a source and each group of workers, and most of what short
queries cost is these imports. `warm_python` gives a program to start in its place: it hands its
arguments, environment, folder and descriptors to a process that has everything loaded, and ends as
the fork of that process ends.
"""

from __future__ import annotations

import gc
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

#: Modules that Spark's processes import, and the package's code in them.
MODULES = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pgwire_codec.spark",
    "pgwire_codec.spark.source",
    "pgwire_codec.log",
    "deltalake",
)

#: Started by Spark instead of Python: without site-packages, it is there in some milliseconds.
STARTER = """\
#!{python} -IS
import _socket, marshal, os, signal, sys
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
descriptors = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
request = marshal.dumps((sys.argv[1:], dict(os.environ), os.getcwd()))
server.sendmsg(
    [len(request).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)]
)
server.sendall(request)
process = int.from_bytes(server.recv(4), "big")
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda caught, _: os.kill(process, caught))
status = server.recv(1)
os._exit(status[0] if status else 1)
"""


@contextmanager
def warm_python() -> Iterator[str]:
    """Start the process that forks; yield the path of the program that asks it."""
    if not hasattr(os, "pidfd_open"):  # not Linux
        yield sys.executable
        return
    with tempfile.TemporaryDirectory(prefix="pgwire_codec_") as folder:
        program = Path(folder, "python")
        address = Path(folder, "socket")
        program.write_text(STARTER.format(python=sys.executable, address=str(address)))
        program.chmod(0o755)
        with _serving(address):
            yield str(program)


@contextmanager
def _serving(address: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen(64)
        # The imports go on while Java starts: whoever connects before their end waits.
        code = f"from {__name__} import serve; serve({listening.fileno()})"
        server = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,  # which ends with this process, however that ends
            pass_fds=[listening.fileno()],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "OPENBLAS_NUM_THREADS": "1",  # a process that forks has no threads
            },
        )
    with server:
        yield


def serve(descriptor: int) -> None:
    """Import everything, then fork for each connection of a listening socket."""
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    listening = socket.socket(fileno=descriptor)
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        connection, _ = listening.accept()
        with connection:
            if os.fork() == 0:
                listening.close()
                _supervise(connection)
        # CPU seconds of ended processes are known when they are waited for.
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _supervise(connection: socket.socket) -> NoReturn:
    """Fork the process that is asked for; report its end, or end it with who asked."""
    head, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    size = int.from_bytes(head, "big")
    content = connection.recv(size, socket.MSG_WAITALL)
    if not descriptors or len(content) < size:  # who asked has ended
        os._exit(1)
    process = os.fork()
    if process == 0:
        connection.close()
        _become(descriptors, *marshal.loads(content))
    for each in descriptors:
        os.close(each)
    with suppress(ConnectionError):  # who asked may have ended, which the next lines see
        connection.sendall(process.to_bytes(4, "big"))
    ended = os.pidfd_open(process)
    if connection in select.select([connection, ended], [], [])[0]:
        os.kill(process, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(ConnectionError):
        connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _become(
    descriptors: list[int], arguments: list[str], environment: dict[str, str], folder: str
) -> NoReturn:
    """Run `python -m MODULE ARGUMENTS` in this process, and end it."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder, *(path for path in paths if path and path not in sys.path)]
    _, module, *sys.argv[1:] = arguments
    sys.modules.pop(module, None)  # it was imported, not run
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()
