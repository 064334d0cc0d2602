"""A joined table in Iceberg under live traffic, while its join is killed, rebuilt, swapped and repaired."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from cdc.stored.lakehouse import IcebergCatalog
from joins.stores.iceberg.iceberg_runs import shown_table
from joins.stores.iceberg.iceberg_table import IcebergTable
from tailorbird.cli.cli_demo_steps import background_traffic
from tailorbird.devtools.stack.proc_stack import Stack
from tests.support.changing_topology import ChangingTopology, loaded_shop
from tests.support.join_faults import equal, forget_state, kill_join
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]

SHOP = Path(__file__).parents[2] / "topologies" / "shop.yml"
RATE = 20.0


class DuckDBReader:
    """A reader who asks DuckDB again and again. `seen` has (rows, rows with the new column or None without it)."""

    def __init__(self, where: IcebergCatalog) -> None:
        self._where, self._catalog = where, IcebergTable(where, "orders_wide").catalog
        self.seen: list[tuple[int, int | None]] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> DuckDBReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(0.3):
            try:
                self.seen.append(look(self._where))
            except Exception as error:  # noqa: BLE001  # whatever a reader gets is a finding
                self.errors.append(repr(error))


def look(where: IcebergCatalog) -> tuple[int, int | None]:
    """Return (rows, rows with the new column or None without it) of what readers see; (0, None) before the first."""
    table = shown_table(IcebergTable(where, "orders_wide").catalog, where, "orders_wide")
    if table is None:
        return 0, None
    with duckdb.connect() as connected:
        connected.register("orders", table.scan().to_arrow())
        doubled = "count(doubled)" if "doubled" in table.schema().column_names else "NULL"
        row = connected.execute(f"SELECT count(*), {doubled} FROM orders").fetchone()
        assert row is not None
        return int(row[0]), row[1]


@pytest.fixture
def where(tmp_path: Path, unique: Callable[[str], str]) -> IcebergCatalog:
    return IcebergCatalog(
        uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", namespace="lake", interval=2,
        retain=600,
    )  # fmt: skip


@pytest.fixture
def evolving(stack: Stack, where: IcebergCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingTopology:
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    made = ChangingTopology(tmp_path)
    text = SHOP.read_text().replace("name: shop\n", f"name: {made.name}\n", 1)
    text = text[: text.index("indexes:")].rstrip() + "\n    sink: iceberg\n    salt_buckets: 4\n"
    made.file.write_text(
        f"{text}iceberg: {{uri: '{where.uri}', warehouse: {where.warehouse}, namespace: lake, interval: 2s,"
        f" retain: 10m}}\n"
    )
    return made


def test_a_table_in_iceberg_under_kills_a_swap_and_a_rebuild(evolving: ChangingTopology, where: IcebergCatalog) -> None:
    """The table equals the SELECT after kills of the join. A changed query is built alongside and swapped in, and a
    lost state is rebuilt, without a moment in which DuckDB lacks rows or sees a mixture. `verify` finds a wrong row and
    repairs it. No file stays that no snapshot uses.
    """
    with loaded_shop(evolving.topology) as (servers, generator):
        with evolving.run():
            wait_for(lambda: look(where)[0] > 900, "the first rows do not come", 500)
            with DuckDBReader(where) as reader:
                with background_traffic(generator, servers, rate=RATE):
                    for _ in range(3):
                        time.sleep(3)
                        kill_join(evolving)
                assert equal(evolving)
                evolving.edit("o.note, o.created_at", "upper(o.note) AS note, o.quantity * 2 AS doubled, o.created_at")
                with background_traffic(generator, servers, rate=RATE):
                    applied = evolving.command("apply")
                assert applied.returncode == 0, applied.stderr
                assert "queries see orders_wide.v2" in applied.stderr
                assert equal(evolving)
                wait_for(lambda: reader.seen[-1][1] is not None, "the new version is not seen", 60)
            assert not reader.errors, reader.errors[:3]
            assert min(rows for rows, _ in reader.seen) > 900, "the old one serves, whole, and then the new one"
            assert all(new is None or new == rows for rows, new in reader.seen), "a query sees the one or the other"
            break_row(where)
            assert set(evolving.outcomes().values()) == {"different", "equal"}
            repaired = evolving.command("verify", "--stage", "table", "--repair", "--yes")
            assert repaired.returncode in (0, 1), repaired.stderr
            assert "written again" in repaired.stdout + repaired.stderr
            assert equal(evolving)
            retired = evolving.command("apply", "--retire")
            assert retired.returncode == 0, retired.stderr
        forget_state(evolving)
        with DuckDBReader(where) as reader, evolving.run(), background_traffic(generator, servers, rate=RATE):
            before = runs(where)
            wait_for(lambda: runs(where) and runs(where).isdisjoint(before), "it is not rebuilt", 500)
        assert not reader.errors, reader.errors[:3]
        assert min(rows for rows, _ in reader.seen) > 900, "the former run's rows serve until the new ones are complete"
        with evolving.run():
            assert equal(evolving)
    table = IcebergTable(where, "orders_wide.v2")
    table.expire(time.time_ns() // 1_000_000 + 60_000)
    assert len(list(Path(where.warehouse).rglob("*.parquet"))) == 4, "one per bucket"


def runs(where: IcebergCatalog) -> set[str]:
    """Return the complete runs."""
    return {one.run for one in IcebergTable(where, "orders_wide.v2").runs() if one.state.complete}


def break_row(where: IcebergCatalog) -> None:
    """Delete a row that readers see, as no join would."""
    table = IcebergTable(where, "orders_wide.v2")
    served = table.served()
    assert served is not None
    key = served.table.scan(selected_fields=("_key",), limit=1).to_arrow()["_key"][0].as_py()
    table.delete_rows({key: 2**60})
