"""A server with TLS: Debian's PostgreSQL 15, where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers import DEBIAN, QUICK_AND_STEADY, InstalledServer, installed

#: Lines of pg_hba.conf: over TCP never without TLS, one role with a certificate only.
_HBA = """\
local   all all                   trust
hostssl all with_certificate 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32      scram-sha-256
"""


@dataclass(frozen=True)
class TlsServer:
    """A server, and a folder with its authority's certificate and that of a role."""

    server: InstalledServer
    port: int
    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "root.crt"


@contextmanager
def tls_server(folder: Path) -> Iterator[TlsServer]:
    """Start a server for ``localhost``; write ``root.crt``, ``client.crt`` and ``client.key``."""
    if not DEBIAN.exists():
        pytest.skip("Debian's PostgreSQL 15 is not installed")
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "root.crt")
    client = authority.issue_cert(common_name="with_certificate")
    client.cert_chain_pems[0].write_to_path(folder / "client.crt")
    client.private_key_pem.write_to_path(folder / "client.key")
    (folder / "client.key").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = {**QUICK_AND_STEADY, "port": str(port)}
    with installed(DEBIAN, settings) as server:
        data = server.directory / "data"
        certificate = authority.issue_cert("localhost")
        for name, pem in (
            ("server.crt", certificate.cert_chain_pems[0]),
            ("server.key", certificate.private_key_pem),
            ("root.crt", authority.cert_pem),
        ):
            pem.write_to_path(data / name)
            (data / name).chmod(0o600)
            if os.geteuid() == 0:
                shutil.chown(data / name, "postgres")
        (data / "pg_hba.conf").write_text(_HBA)
        with (data / "postgresql.conf").open("a") as file:
            file.write("ssl = on\nssl_ca_file = 'root.crt'\nlisten_addresses = '127.0.0.1'\n")
        server.restart()
        yield TlsServer(server, port, folder)
