"""A fleet whose gateway is hostile, and database servers with certificates, which all modules here share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from tests.hostile.hostile_gateway import HostileGateway
from tests.ingest.binlog.binlog_servers import Server, start
from tests.support.certificates import self_signed
from tests.support.gateways import certificates
from tests.support.pg_servers import PgServer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the fleet's certificates."""
    structlog.reset_defaults()
    return certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def gateway(folder: Path) -> Iterator[HostileGateway]:
    """Run a hostile gateway until the end of the test."""
    yield (made := HostileGateway(folder))
    made.close()


@dataclass(frozen=True)
class Files:
    """Certificates of 127.0.0.1: `ca` of the database servers, `other` of an unknown party."""

    folder: Path

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return settings with paths in place of `{ca}` and `{other}`."""
        paths = {"ca": self.folder / "ca.pem", "other": self.folder / "other.pem"}
        return {key: value.format(**paths) for key, value in given.items()}

    @property
    def mysql_options(self) -> tuple[str, ...]:
        """Return the options of a MySQL or MariaDB server that uses them, and listens on all addresses."""
        authority, key = self.folder / "ca.pem", self.folder / "ca.key"
        return f"--ssl-ca={authority}", f"--ssl-cert={authority}", f"--ssl-key={key}", "--bind-address=0.0.0.0"


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Create the certificates."""
    made = tmp_path_factory.mktemp("certificates")
    for name in ("ca", "other"):
        certificate, key = self_signed(rsa_key=True)
        (made / f"{name}.pem").write_bytes(certificate)
        (made / f"{name}.key").write_bytes(key)
        (made / f"{name}.key").chmod(0o600)
    return Files(made)


@pytest.fixture(scope="session")
def mysql80(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a MySQL server for all tests here. A test that changes a global setting restores it."""
    server = start("mysql80", tmp_path_factory.mktemp("mysql80"), *files.mysql_options, "--max-connections=2000")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_server(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgServer]:
    """Run a PostgreSQL server for all tests here."""
    flags = {
        "ssl": "on", "ssl_cert_file": str(files.folder / "ca.pem"), "ssl_key_file": str(files.folder / "ca.key"),
        "listen_addresses": "0.0.0.0",
    }  # fmt: skip
    server = PgServer(tmp_path_factory.mktemp("pg"), flags=flags)
    server.start()
    yield server
    server.kill()
