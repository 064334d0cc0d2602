"""PostgreSQL servers of the tests: the stack's version in `make test`, the oldest supported one in `make matrix`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.pg_captured import Capture, PgCaptured, captured
from tests.support.pg_servers import PgServer


@pytest.fixture(scope="session", params=["18", pytest.param("15", marks=pytest.mark.matrix)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgServer]:
    one = PgServer(tmp_path_factory.mktemp("postgres"), request.param, {"max_prepared_transactions": "10"})
    one.start()
    yield one
    one.kill()


@pytest.fixture
def capture(server: PgServer, unique: Callable[[str], str]) -> Iterator[Capture]:
    """`capture(tables, extra)`: an empty database, and its capture."""
    made: list[PgCaptured] = []

    def make(tables: str = "[t]", extra: str = "") -> PgCaptured:
        made.append(captured(server, unique("pg"), tables, extra))
        return made[-1]

    yield make
    for one in made:
        one.close()
