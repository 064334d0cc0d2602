"""Databases that polling reaches through SQLAlchemy: SQLite, and a real PostgreSQL of the tests' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.pg_servers import PgServer
from tests.support.polled import PolledDatabase, PolledPostgres, PolledSqlite


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgServer]:
    one = PgServer(tmp_path_factory.mktemp("postgres"))
    one.start()
    yield one
    one.kill()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def database(request: pytest.FixtureRequest, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[PolledDatabase]:
    """An empty database."""
    if request.param == "sqlite":
        yield PolledSqlite(tmp_path / "source.db")
        return
    made = PolledPostgres(request.getfixturevalue("postgres"), unique("poll"))
    yield made
    made.close()
