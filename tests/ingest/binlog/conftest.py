"""Fixtures of the binlog library's tests: private servers, sample binlogs, and the `matrix` tests' opt-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ingest.binlog.binlog_servers import Server, start

DATA = Path(__file__).resolve().parents[2] / "data" / "binlogs"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip `matrix` tests unless `-m matrix` selects them."""
    if "matrix" in (config.getoption("markexpr") or ""):
        return
    chosen = [item for item in items if not item.get_closest_marker("matrix")]
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("matrix")])
    items[:] = chosen


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """`servers(flavour)`: a private server, started once for all tests that request it."""
    running: dict[str, Server] = {}

    def get(flavour: str) -> Server:
        if flavour not in running:
            running[flavour] = start(flavour, tmp_path_factory.mktemp(flavour))
        return running[flavour]

    yield get
    for server in running.values():
        server.stop()


@pytest.fixture(scope="session")
def mysql80(servers: Callable[[str], Server]) -> Server:
    """The private MySQL 8.0."""
    return servers("mysql80")


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of sample binlogs."""
    return DATA
