"""Processes of a pipeline: which are restarted and which stay down."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.model.errors import Fatal
from cdc.process.file_running import ended
from cdc.process.http_operation import serve_operation
from cdc.process.verdict import HealthVerdict
from cdc.topology.reader import read_topology
from cdc.topology.topology import Dashboard, Index
from tailorbird.operate.pipeline.proc_pipeline import Pipeline, parts
from tests.support.waiting import wait_for

TOPOLOGY = read_topology(
    """
name: t
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}
tables: {wide: {query: SELECT a.id FROM s.a a, row_key: [id]}}
""",
    file="t.yml",
    environ={},
)
PART = """
import subprocess
import sys
from pathlib import Path
from cdc.process.file_running import announced
from cdc.model.errors import Fatal, Retriable
tries = Path(sys.argv[1])
number = len(tries.read_text()) if tries.exists() else 0
tries.write_text("x" * (number + 1))
with announced("t", "capture s", 0):
    RAISE
"""


def pipeline_of(folder: Path, statement: str) -> Pipeline:
    """A pipeline whose capture ends at once in its own way; its join runs on."""
    made = Pipeline(TOPOLOGY, home=folder)
    made._restarts.longest = 0.01
    capture = (sys.executable, "-c", PART.replace("RAISE", statement), str(folder / "tries"))
    join = (sys.executable, "-c", "import time; time.sleep(100)")
    made.parts = [replace(made.part("capture s"), command=capture), replace(made.part("join wide"), command=join)]
    return made


def tries(folder: Path) -> int:
    file = folder / "tries"
    return len(file.read_text()) if file.exists() else 0


def checked(pipeline: Pipeline, condition: Callable[[], object], otherwise: str) -> None:
    """Watch over the pipeline until a condition holds."""

    def holds() -> object:
        pipeline.check()
        return condition()

    wait_for(holds, otherwise, 60)


def test_three_times_the_same_fatal_reason_and_it_stays_down(tmp_path: Path) -> None:
    """This holds for any position in the reason. The other processes keep running, and `status` shows the reason."""
    statement = 'raise Fatal(f"purged after {number}", "position_lost: resnapshot")'
    with pipeline_of(tmp_path, statement) as pipeline:
        pipeline.start()
        checked(pipeline, lambda: pipeline.down, "it is started again and again")
        assert pipeline.down == {"capture s": "purged after 2; position_lost: resnapshot"}
        for _ in range(20):
            pipeline.check()
        assert tries(tmp_path) == 3
        assert pipeline.alive("join wide")
        assert ended("t", tmp_path)["capture s"].kind == "Fatal"


@pytest.mark.long
@pytest.mark.parametrize(
    "statement",
    [
        'raise Retriable("Kafka is unavailable")',
        'raise Fatal("abcdefghi"[number % 9])',
        'raise Fatal("same") if number % 3 else Retriable("other")',
        "sys.exit(1)",
    ],
)
def test_what_may_pass_is_started_again(statement: str, tmp_path: Path) -> None:
    """After an unavailable server, changing reasons or a crash, the next start may succeed."""
    with pipeline_of(tmp_path, statement) as pipeline:
        pipeline.start()
        checked(pipeline, lambda: tries(tmp_path) >= 5, "it is not started again")
        assert pipeline.down == {}


def test_who_is_used_wrongly_stays_down_and_the_others_run_on(tmp_path: Path) -> None:
    """After exit code 2, a restart would repeat the mistake. Callers that need the process use `must_run`."""
    with pipeline_of(tmp_path, "print('no such table'); sys.exit(2)") as pipeline:
        pipeline.start()
        checked(pipeline, lambda: pipeline.down, "it is started again and again")
        for _ in range(20):
            pipeline.check()
        assert (tries(tmp_path), pipeline.down) == (1, {"capture s": "no such table"})
        assert pipeline.alive("join wide")
        with pytest.raises(Fatal, match="capture s cannot run: no such table"):
            pipeline.must_run()


def test_no_other_program_gets_the_port_of_a_part(tmp_path: Path) -> None:
    """Not before the part starts, nor while it is down. Otherwise it would end with a usage error, and stay down."""
    with Pipeline(TOPOLOGY, home=tmp_path) as pipeline:
        [port] = pipeline.part("join wide").serves.values()
        for _ in range(2):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
            server = serve_operation(port, lambda: (HealthVerdict(status="moving", reason=""), {}))
            server.shutdown()
            server.server_close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


@pytest.mark.parametrize(("isolation", "names"), [("shared", ["joins"]), ("process", ["join narrow", "join wide"])])
def test_tables_share_a_process_unless_reported_otherwise(isolation: str, names: list[str], tmp_path: Path) -> None:
    """A port for each table either way, by which `status` finds it under its own name."""
    topology = read_topology(
        f"""
name: t
sources: {{s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}}}
joins: {{isolation: {isolation}}}
tables:
  narrow: {{query: SELECT a.id FROM s.a a, row_key: [id]}}
  wide: {{query: SELECT a.id FROM s.a a, row_key: [id]}}
""",
        file="t.yml",
        environ={},
    )
    joins = [part for part in parts(topology, home=tmp_path) if part.stage == "join"]
    assert [part.name for part in joins] == names
    served = [name for part in joins for name in part.serves]
    assert served == ["join narrow", "join wide"]
    for part in joins:
        asked = list(part.command)
        assert [asked[n + 1] for n, word in enumerate(asked) if word == "--table"] == [
            name.removeprefix("join ") for name in part.serves
        ]
        assert [asked[n + 1] for n, word in enumerate(asked) if word == "--metrics-port"] == [
            str(port) for port in part.serves.values()
        ]


def test_a_pipeline_follows_what_a_topology_has_now(tmp_path: Path) -> None:
    """A new version gets its own processes while the others keep running; those of a removed version end.

    A shared join process that loses a table restarts with the rest, and so does the page when its index changes.
    """
    table, index = (
        TOPOLOGY.tables["wide"],
        Index(name="main", table="wide", collection="t_main", search=(), commit_within=1),
    )
    page = Dashboard(name="page", index="main", title="", facets=(), time=None, columns=(), refresh=1)
    first = replace(TOPOLOGY, indexes={"main": index}, dashboards={"page": page})
    second = replace(
        first,
        tables={"wide": table, "wide.v2": replace(table, name="wide.v2")},
        indexes={"main": index, "main.v2": replace(index, name="main.v2", table="wide.v2")},
    )
    last = replace(
        second,
        tables={"wide.v2": second.tables["wide.v2"]},
        indexes={"main.v2": second.indexes["main.v2"]},
        dashboards={"page": replace(page, index="main.v2")},
    )
    with pipeline_of(tmp_path, "time.sleep(100)") as pipeline:
        made: list[str] = []

        def start_part(name: str) -> None:
            made.append(name)
            pipeline._running[name] = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])

        pipeline.parts = parts(first, home=tmp_path, page_port=1)
        pipeline.start_part = start_part  # type: ignore[method-assign]  # else real ones would begin
        pipeline.follow(first)
        assert made == ["capture s", "join wide", "index main", "page"]
        made.clear()
        pipeline.follow(second)
        assert made == ["join wide.v2", "index main.v2"]
        made.clear()
        pipeline.follow(last)
        assert made == ["page"]
        assert [part.name for part in pipeline.parts] == ["capture s", "page", "join wide.v2", "index main.v2"]
        assert not pipeline.alive("join wide")
        pipeline.parts = parts(second, home=tmp_path)  # the two joins in one process, as a new `run` has them
        pipeline.start_part("joins")
        pipeline.follow(last)
        assert not pipeline.alive("joins")
        assert pipeline.alive("join wide.v2")
