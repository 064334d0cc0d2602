"""A joined table in PostgreSQL under live traffic, while everything is killed, rebuilt, swapped and repaired."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from cdc.model.artefacts import cache_folder
from tailorbird.cli.cli_demo_steps import background_traffic
from tailorbird.devtools.stack.proc_stack import Stack
from tests.support.changing_topology import ChangingTopology, loaded_shop
from tests.support.join_faults import equal, forget_state, kill_join
from tests.support.pg_servers import PgServer
from tests.support.superset import superset
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]

SHOP = Path(__file__).parents[2] / "topologies" / "shop.yml"
PASSWORD = "s3cret-of-the-writer"
RATE = 20.0


class Poller:
    """A reader who asks again and again. `seen` has (rows, rows with the new column or None without it)."""

    def __init__(self, server: PgServer, schema: str) -> None:
        self._server, self._schema = server, schema
        self.seen: list[tuple[int, int | None]] = []
        self.errors: list[str] = []
        self._stop, self._down = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Poller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def server_down(self) -> Iterator[None]:
        """Accept lost connections during the block."""
        self._down.set()
        yield
        self._down.clear()

    def _poll(self) -> None:
        while not self._stop.is_set():
            try:
                with self._server.session() as connected:
                    while not self._stop.wait(0.02):
                        row = connected.execute(
                            f"SELECT count(*), count(to_json(o) ->> 'doubled'), bool_or(to_json(o)::jsonb ? 'doubled')"
                            f" FROM {self._schema}.orders_wide o".encode()
                        ).fetchone()
                        assert row is not None
                        self.seen.append((row[0], row[1] if row[2] else None))
            except psycopg.Error as error:
                if not self._down.is_set():
                    self.errors.append(str(error))
                time.sleep(0.05)


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[PgServer]:
    """A server that the test may kill."""
    server = PgServer(tmp_path / "postgres")
    server.start()
    with server.session() as connected:
        connected.execute(f"CREATE ROLE writer LOGIN PASSWORD '{PASSWORD}'".encode())
        connected.execute("GRANT CREATE ON DATABASE billing TO writer")
        connected.execute("CREATE ROLE reader LOGIN")
    yield server
    server.kill()


@pytest.fixture
def evolving(stack: Stack, postgres: PgServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingTopology:
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    made = ChangingTopology(tmp_path)
    text = SHOP.read_text().replace("name: shop\n", f"name: {made.name}\n", 1)
    text = text[: text.index("indexes:")].rstrip() + "\n    sink: postgres\n"
    made.file.write_text(
        f"{text}postgres: {{hostname: 127.0.0.1, port: {postgres.port}, username: writer, password: {PASSWORD},"
        f" dbname: billing}}\n"
    )
    return made


def test_a_table_in_postgresql_under_kills_a_swap_and_a_rebuild(evolving: ChangingTopology, postgres: PgServer) -> None:
    """The table equals the SELECT after kills of the join and of PostgreSQL. A changed query is built alongside and
    swapped in, and a lost state is rebuilt, without a moment in which a reader lacks rows; its grants stay. `verify`
    finds a wrong row and repairs it. The password is in no log.
    """
    schema = f'"{evolving.name}"'
    with loaded_shop(evolving.topology) as (servers, generator):
        with evolving.run():
            wait_for(lambda: visible(postgres, schema) > 900, "the first rows do not come", 400)
            with postgres.session() as connected:
                connected.execute(f"GRANT USAGE ON SCHEMA {schema} TO reader".encode())
                connected.execute(f"GRANT SELECT ON {schema}.orders_wide TO reader".encode())
            with Poller(postgres, schema) as poller:
                with background_traffic(generator, servers, rate=RATE):
                    for _ in range(2):
                        time.sleep(2)
                        kill_join(evolving)
                    with poller.server_down():
                        postgres.kill()
                        time.sleep(1)
                        postgres.start()
                        wait_for(lambda: visible(postgres, schema) > 900, "PostgreSQL does not answer", 60)
                assert equal(evolving)
                evolving.edit("o.note, o.created_at", "upper(o.note) AS note, o.quantity * 2 AS doubled, o.created_at")
                with background_traffic(generator, servers, rate=RATE):
                    applied = evolving.command("apply")
                assert applied.returncode == 0, applied.stderr
                assert "queries see orders_wide.v2" in applied.stderr
                assert equal(evolving)
                wait_for(lambda: poller.seen[-1][1] is not None, "the new version is not seen", 60)
            assert not poller.errors, poller.errors[:3]
            assert min(rows for rows, _ in poller.seen) > 900, "the old one serves, whole, and then the new one"
            assert all(new is None or new == rows for rows, new in poller.seen), "a query sees the one or the other"
            assert granted(postgres, schema) == [("reader", "SELECT")]
            break_row(postgres, schema)
            assert set(evolving.outcomes().values()) == {"different", "equal"}
            repaired = evolving.command("verify", "--stage", "table", "--repair", "--yes")
            assert repaired.returncode in (0, 1), repaired.stderr
            assert "written again" in repaired.stdout + repaired.stderr
            assert equal(evolving)
            retired = evolving.command("apply", "--retire")
            assert retired.returncode == 0, retired.stderr
        forget_state(evolving)
        with Poller(postgres, schema) as poller, evolving.run(), background_traffic(generator, servers, rate=RATE):
            before = relations(postgres, evolving.name)
            wait_for(lambda: relations(postgres, evolving.name).isdisjoint(before), "it is not rebuilt", 400)
        assert not poller.errors, poller.errors[:3]
        assert min(rows for rows, _ in poller.seen) > 900, "the former run's rows serve until the new ones are complete"
        with evolving.run():
            assert equal(evolving)
    assert PASSWORD not in evolving.log.read_text()


def visible(postgres: PgServer, schema: str) -> int:
    """Count the rows that readers see; 0 before there is a view."""
    try:
        with postgres.session() as connected:
            row = connected.execute(f"SELECT count(*) FROM {schema}.orders_wide".encode()).fetchone()
            return int(row[0]) if row else 0
    except psycopg.Error:
        return 0


def granted(postgres: PgServer, schema: str) -> list[tuple[str, str]]:
    with postgres.session() as connected:
        return connected.execute(
            "SELECT a.grantee::regrole::text, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a"
            " WHERE c.oid = to_regclass(%s) AND a.grantee <> c.relowner",
            (f"{schema}.orders_wide",),
        ).fetchall()


def relations(postgres: PgServer, name: str) -> set[str]:
    """Return the relations with rows."""
    with postgres.session() as connected:
        found = connected.execute(f'SELECT relation FROM "{name}_rows"._relations'.encode()).fetchall()
        return {row[0] for row in found}


def break_row(postgres: PgServer, schema: str) -> None:
    """Change a row that readers see, as no join would."""
    with postgres.session() as connected:
        row = connected.execute(
            "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid"
            " JOIN pg_class c ON c.oid = d.refobjid JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE r.ev_class = to_regclass(%s) AND c.relkind = 'r' LIMIT 1",
            (f"{schema}.orders_wide",),
        ).fetchone()
        assert row is not None
        connected.execute(f"UPDATE {row[0]} SET status = 'broken' WHERE id = (SELECT min(id) FROM {row[0]})".encode())


def test_superset_shows_a_joined_table(evolving: ChangingTopology, postgres: PgServer, tmp_path: Path) -> None:
    """As docs/sql.md describes it: a database with a login that may only read, a dataset, a chart. The chart shows what
    the view has, also after more changes."""
    schema, place = evolving.name, f"postgresql+psycopg2://dashboards:pw@127.0.0.1:{postgres.port}/billing"
    by_status = f'SELECT status, sum(quantity) FROM "{schema}".orders_wide GROUP BY status'.encode()
    with loaded_shop(evolving.topology) as (servers, generator), evolving.run():
        wait_for(lambda: visible(postgres, f'"{schema}"') > 900, "the first rows do not come", 400)
        with postgres.session() as connected:
            connected.execute("CREATE ROLE dashboards LOGIN PASSWORD 'pw'")
            connected.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO dashboards'.encode())
            connected.execute(f'GRANT SELECT ON "{schema}".orders_wide TO dashboards'.encode())
            with superset(cache_folder(os.environ).absolute(), tmp_path) as client:
                dataset = client.dataset(place, schema, "orders_wide")
                assert client.columns(dataset)["amount"].startswith("NUMERIC")
                before = client.sums(dataset, "status", "quantity")
                assert before == dict(connected.execute(by_status).fetchall())
                with background_traffic(generator, servers, rate=RATE):
                    time.sleep(5)
                assert equal(evolving)
                after = client.sums(dataset, "status", "quantity")
                assert after == dict(connected.execute(by_status).fetchall())
                assert after != before
