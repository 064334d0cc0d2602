"""`tailorbird explain-plan`: show a join's plan before it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from cdc.model.errors import UsageError
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.topology.topology import Table, Topology
from tailorbird.operate.status.selection import ListChoice

if TYPE_CHECKING:
    from joins.query.plan import Plan

_SHORT = 3.0  # seconds to read schemas that are already in the log


def explain_plan(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[str | None, typer.Argument(help="The table. Default: all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plans as JSON, by table.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write a drawing of TABLE's plan to this file.")] = None,
    schemas: Annotated[
        Path | None,
        typer.Option("--schemas", help="Read schemas from this file (one JSON record per line), not Kafka."),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for schemas in Kafka.")] = 10.0,
    search: Annotated[str, typer.Option("--search", help="Only tables whose names contain all of these words.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Print at most this many plans; JSON: all.")] = 20,
) -> None:
    """Print the plan of a table's query: joins, stateful steps and column types.

    Reads schemas from the log, where `tailorbird capture` publishes them, or else from their servers. Changes nothing.

    Example: tailorbird explain-plan topologies/shop.yml orders_wide --svg plan.svg
    """
    from cdc.process.file_topology import read_file
    from joins.query.drawing import svg_of_plan
    from joins.query.drift import drifts
    from joins.select.compiler import compile_plan
    from joins.select.parser import check_query, tables_of
    from tailorbird.operate.doctor.validate import warnings_of

    topology = read_file(file)
    wanted = _wanted(topology, table, search)
    left = [] if as_json or svg is not None else wanted[limit:]
    wanted = wanted[: len(wanted) - len(left)]
    if svg is not None and len(wanted) != 1:
        raise UsageError("--svg draws one table", "give one of " + ", ".join(topology.tables))
    for one in wanted:
        check_query(topology, one)
    needed = frozenset(table_id for one in wanted for table_id in tables_of(topology, one))
    if schemas is not None:
        found, where, hint = schemas_in(schemas), str(schemas), "has `tailorbird capture` run?"
    else:
        found, unchecked = _known(topology, needed, timeout)
        where = f"the log at {topology.log.bootstrap_servers}, or on its server"
        hint = "; ".join(unchecked) or "has `tailorbird capture` run?"
    if missing := sorted(str(table_id) for table_id in needed - set(found)):
        raise UsageError(f"no schema of {', '.join(missing)} in {where}", hint)
    plans = {one.name: compile_plan(topology, one, found) for one in wanted}
    for warning in dict.fromkeys(one for plan in plans.values() for one in drifts(plan, found)):
        typer.echo(f"warning: {warning}", err=True)
    if svg is not None:
        svg.write_text(svg_of_plan(plans[wanted[0].name]), encoding="utf-8")
        typer.echo(f"wrote {svg}", err=True)
    warnings = {name: warnings_of(topology, topology.tables[name], plan, found) for name, plan in plans.items()}
    _print_plans(plans, warnings, left=len(left), as_json=as_json, as_text=svg is None)


def _print_plans(
    plans: Mapping[str, Plan],
    warnings: Mapping[str, list[tuple[str, str]]],
    *,
    left: int,
    as_json: bool,
    as_text: bool,
) -> None:
    """Print plans by table, and their warnings. `left` is the number of tables that are left out."""
    from joins.query.describe import json_of_plan, text_of_plan

    if as_json:
        reported = {
            name: {**json_of_plan(plan), "warnings": [{"found": f, "remedy": r} for f, r in warnings[name]]}
            for name, plan in plans.items()
        }
        typer.echo(json.dumps(reported, indent=2))
        return
    if as_text:
        typer.echo("\n\n".join(text_of_plan(plan) for plan in plans.values()))
        if left:
            typer.echo(f"\n… and {left:,} more tables. See --limit, --search and --json")
    for name, keys in warnings.items():
        warn(name, keys)


def _wanted(topology: Topology, table: str | None, search: str) -> list[Table]:
    """Return one table, or those that match a search. Raises UsageError if there is none."""
    if table is not None and table not in topology.tables:
        raise UsageError(f"{topology.file}: no table {table}", "one of " + ", ".join(topology.tables))
    every = [topology.tables[table]] if table is not None else list(topology.tables.values())
    found = ListChoice(search=search).matching(every, lambda one: one.name)
    if search and not found:
        raise UsageError(f"{topology.file}: no table matches {search!r}", "use other words")
    return found


def warn(table: str, found: Iterable[tuple[str, str]]) -> None:
    """Print warnings about a table's query, each (text, remedy), to standard error."""
    for what, remedy in found:
        typer.echo(f"warning: table {table}: {what}\n  remedy: {remedy}", err=True)


def schemas_in(file: Path) -> dict[TableId, TableSchema]:
    """Read schemas from a file that has one record of the schemas topic per line. Raises UsageError if it is
    invalid."""
    from joins.query.drift import remembering

    try:
        records = [orjson.loads(line) for line in file.read_bytes().splitlines() if line.strip()]
        read = [schema_from_json(record) for record in records]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: {error}", "write one record of the schemas topic per line") from error
    versions: dict[TableId, list[TableSchema]] = {}
    for schema in read:
        versions.setdefault(schema.table_id, []).append(schema)
    return {table_id: remembering(some) for table_id, some in versions.items()}


def _known(
    topology: Topology, needed: frozenset[TableId], timeout: float
) -> tuple[dict[TableId, TableSchema], list[str]]:
    """Read schemas from Kafka, or else from the servers. Return them, and the reasons why others are missing."""
    from tailorbird.cli.cli_schemas import ask_servers
    from tailorbird.operate.probes.kafka_probe import kafka_problem

    log = topology.log.brokers
    there = not kafka_problem(log)
    found = _from_log(topology, needed, min(timeout, _SHORT)) if there else {}
    missing = needed - set(found)
    if not missing:
        return found, []
    asked = ask_servers(topology, missing)
    if asked.schemas:
        names = ", ".join(sorted(map(str, asked.schemas)))
        typer.echo(f"not captured yet, read from the server: {names}", err=True)
    found |= asked.schemas
    faults = [f"{fault.check}: {fault.found}" for fault in asked.faults]
    if there and needed - set(found) and timeout > _SHORT:
        found |= _from_log(topology, needed, timeout - _SHORT)
    return found, [*faults, *asked.unchecked]


def _from_log(topology: Topology, needed: frozenset[TableId], timeout: float) -> dict[TableId, TableSchema]:
    from joins.stores.kafka_schemas import read_schemas

    return read_schemas(topology.log.brokers, topology.name, needed, lambda _: None, _over(timeout))


def _over(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline
