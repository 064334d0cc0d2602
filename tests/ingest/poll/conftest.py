"""Databases that polling reads through SQLAlchemy: SQLite, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.polled import PolledDatabase, PolledPostgres, PolledSqlite


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def database(request: pytest.FixtureRequest, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[PolledDatabase]:
    """An empty database."""
    if request.param == "sqlite":
        yield PolledSqlite(tmp_path / "source.db")
        return
    made = PolledPostgres(request.getfixturevalue("postgres_server"), unique("poll"))
    yield made
    made.close()
