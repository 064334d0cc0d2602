"""Run the measurements of many tables on real servers, and print them next to those of ten tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, get_args

from benchmarks.capture.many_tables import Run
from benchmarks.capture.many_tables_servers import MysqlTables, PostgresTables
from benchmarks.capture.proc_brokers import brokers_running
from benchmarks.decode.proc_peers import check_tools
from benchmarks.harness import report
from cdc.model.artefacts import cache_folder
from cdc.model.errors import TailorbirdError
from tailorbird.devtools.demo.proc_debezium import debezium_command
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.settings import Ports, ServiceName, StackSettings

Kind = Literal["mysql", "postgresql"]
Part = Literal["direct", "gateway", "changes", "rows", "changes_shared", "rows_shared", "debezium"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
DEFAULTS: Final[Mapping[Kind, Sequence[int]]] = {"mysql": (10, 20_000), "postgresql": (10, 5_000)}
_SERVICES: Final[Mapping[Kind, ServiceName]] = {"mysql": "mysql-shop", "postgresql": "postgres"}
_SMALL, _LARGE = 700, 2000  # MiB of heap of each broker
_TABLES_SMALL = 3000  # most tables for which the small one suffices
# The settings of change topics as the brokers' defaults (docs/scale.md): then topics need none of their own.
_DEFAULTS: Final[Mapping[str, str]] = {
    "log.cleanup.policy": "compact",
    "log.cleaner.min.compaction.lag.ms": "604800000",
    "log.cleaner.delete.retention.ms": "604800000",
    "message.max.bytes": "16777216",
}
_LONGEST = 900.0  # seconds until Debezium counts as not finished
_COSTS = {
    "start": "start of capture, s",
    "start_mib": "largest memory until then, MiB",
    "first_mib": "largest memory of the first run, MiB",
    "restart": "restart, s",
    "restart_mib": "largest memory until then, MiB",
    "idle": "idle while all tables are read, % of a core",
    "transaction": "transaction during the snapshot, ms",
    "alter": "ALTER TABLE, ms",
    "grant": "GRANT, ms",
}
_ROWS: Final[Mapping[str, str]] = {
    **{f"direct.{name}": text for name, text in _COSTS.items()},
    **{
        f"{part}.{name}": text.format(what)
        for part, what in {
            "changes": "one change in each table",
            "rows": "one row in each table",
            "changes_shared": "log.topics per_database: one change in each table",
            "rows_shared": "log.topics per_database: one row in each table",
        }.items()
        for name, text in {
            "wall": "{}, s from a start without topics until all are in Kafka (elapsed)",
            "used": "{}, processor time until then, s",
            "mib": "{}, largest memory until then, MiB",
        }.items()
    },
    **{f"gateway.{name}": f"through a gateway: {text}" for name, text in _COSTS.items()},
    "gateway.gateway_s": "the gateway, all of the above, s",
    "gateway.gateway_mib": "the gateway, largest memory, MiB",
    "debezium.start": "Debezium: start without rows, s",
    "debezium.start_mib": "Debezium: largest memory until then, MiB",
}


def measure_servers(
    kinds: Sequence[Kind],
    counts: Mapping[Kind, Sequence[int]],
    columns: int,
    parts: Sequence[Part],
    *,
    defaults: bool,
) -> None:
    """Measure and print, in Markdown: each number of tables on each kind of server.

    `defaults`: the brokers' defaults are the settings of change topics.
    """
    found: dict[str, dict[str, float | None]] = {}
    for kind in kinds:
        for tables in counts[kind]:
            title = f"{kind}, {tables:,} tables"
            found[title] = figures = {}
            for name, value in _measured(kind, tables, columns, parts, _DEFAULTS if defaults else {}):
                figures[name] = value
                report(f"{title}: {name}: {_shown(figures, name)}")
    print("| | " + " | ".join(found) + " |")
    print("|---|" + "--:|" * len(found))
    for name, text in _ROWS.items():
        if any(name in figures for figures in found.values()):
            print(f"| {text} | " + " | ".join(_shown(figures, name) for figures in found.values()) + " |")


def _shown(figures: Mapping[str, float | None], name: str) -> str:
    value = figures.get(name, 0.0)
    if value is None:
        return "did not finish"
    digits = 0 if name.endswith("mib") else 4 if name.endswith(("transaction", "grant")) else 2
    return f"{value:,.{digits}f}" if name in figures else "–"


def _measured(
    kind: Kind, tables: int, columns: int, parts: Sequence[Part], settings: Mapping[str, str]
) -> Iterator[tuple[str, float | None]]:
    """Yield the figures of one server with so many tables, by part and name."""
    cache = cache_folder(os.environ).absolute()
    home = cache / "bench-many-tables"
    java: list[str] = []
    if "debezium" in parts:
        check_tools(["Debezium"])
        java = debezium_command(cache, find_java(cache, os.environ, silent))
    port = 13_600
    heap = _SMALL if tables <= _TABLES_SMALL else _LARGE
    with (
        _server(kind, cache, home / f"{kind}-{tables}-{columns}", port),
        brokers_running(cache, home / "kafka", port + 1, 2, heap, settings) as brokers,
    ):
        load = (MysqlTables if kind == "mysql" else PostgresTables)(port, tables, columns)
        report(f"{kind}: creating {tables:,} tables")
        load.prepare()
        run = Run(
            name=f"many_{tables}", load=load, brokers=brokers, folder=home / "files", gateway_port=port + 9,
        )  # fmt: skip
        for part in parts:
            yield from ((f"{part}.{name}", value) for name, value in _part(run, part, java).items())


def _part(run: Run, part: Part, java: list[str]) -> Mapping[str, float | None]:
    """Return the figures of one part. A part that fails is reported, so that the others are measured."""
    shared = part.endswith("shared")
    try:
        if part in ("changes", "rows", "changes_shared", "rows_shared"):
            return dict(run.changes(snapshots=part.startswith("rows"), shared=shared))
        if part == "debezium":
            return run.debezium(java, _LONGEST)
    except TailorbirdError as error:
        report(str(error))
        return {"start" if part == "debezium" else "wall": None}
    run.load.empty()
    return dict(run.measure(gateway=part == "gateway"))


@contextmanager
def _server(kind: Kind, cache: Path, home: Path, port: int) -> Iterator[None]:
    """Run a database server. Its data stays for later runs, because thousands of tables take minutes to create."""
    ports = Ports(mysql_shop=port) if kind == "mysql" else Ports(postgres=port)
    stack = Stack(StackSettings(home=home, cache=cache, ports=ports))
    try:
        stack.up(services=[_SERVICES[kind]])
        yield
    finally:
        stack.down()
