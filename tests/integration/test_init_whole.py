"""From `tailorbird init` to rows in Solr: the written file runs unchanged, HBase and Solr equal the databases, and
`verify` proves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.model.errors import TailorbirdError
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.cli.cli_demo_verdict import Comparison, verdicts
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tests.integration.conftest import connection
from tests.integration.made_databases import Makes, made, reported
from tests.support.commands import verified
from tests.support.schemas_made import SHAPES
from tests.support.waiting import wait_for

# over PostgreSQL in `make test`: test_postgres_whole.py
pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(600)]
__all__ = ["made"]  # the fixture

# Changes while it runs: rows are inserted, moved and deleted, and a foreign key changes rows without log events.
CHANGES = {
    "rental": (
        "UPDATE payment SET amount = 77.77, customer_id = 3 WHERE payment_id IN (1, 2)",
        "UPDATE film SET title = 'Another Title', rating = 'R' WHERE film_id < 5",
        "DELETE FROM rental WHERE rental_id = 5",
        "DELETE FROM payment WHERE payment_id = 9",
    ),
    "music": (
        "UPDATE Employee SET ReportsTo = 2, LastName = 'Moved' WHERE EmployeeId = 3",
        "DELETE FROM InvoiceLine WHERE InvoiceLineId < 4",
        "UPDATE PlaylistTrack SET TrackId = 50 WHERE TrackId = 1",
    ),
    "trade": (
        "UPDATE Suppliers SET No = 9 WHERE Country = 'PE' AND No = 2",
        "DELETE FROM Employees WHERE EmployeeID = 5",
        "UPDATE `select` SET `order` = NULL, `where` = 'nowhere' WHERE `from` = 2",
    ),
}


def must_be_equal(topology: Topology, pipeline: Pipeline) -> None:
    """HBase and Solr hold DuckDB's answer to each query over the databases."""
    found: list[dict[str, Comparison] | TailorbirdError] = []

    def equal() -> bool:
        pipeline.check()
        try:
            tables = verdicts(topology)
        except TailorbirdError as error:  # nothing has arrived yet
            found[:] = [error]
            return False
        found[:] = [tables]
        return bool(tables) and all(each.equal for each in tables.values())

    try:
        wait_for(equal, "both ends differ from the database", 300)
    except AssertionError as error:
        error.add_note(str(found))
        raise


@pytest.mark.parametrize("shape", ["rental", "music", "trade"])
def test_the_topology_that_init_wrote_runs(
    made: Makes, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """Snapshot, live changes and cascades of an unprepared database, equal field by field."""
    monkeypatch.setenv("MINE", "cdc")
    url, file = made(SHAPES[shape]()), tmp_path / "mine.yml"
    most = "1" if shape == "rental" else "2"
    words = ["--out", str(file), "--name", unique("init"), "--password-env", "MINE", "--tables", most]
    reported("init", url, *words)
    topology = load_topology(str(file))
    list(provision(topology))
    database = next(iter(topology.sources.values())).database
    with Pipeline(topology, home=tmp_path) as pipeline:
        pipeline.start()

        must_be_equal(topology, pipeline)
        with connection(database) as connected, connected.cursor() as cursor:
            for statement in CHANGES[shape]:
                assert cursor.execute(statement)
        must_be_equal(topology, pipeline)
        found = verified(str(file), environ=pipeline.environ)
        assert {stage for stage, _ in found} == {"log", "table", "index"}
        assert {one["outcome"] for one in found.values()} == {"equal"}, found
