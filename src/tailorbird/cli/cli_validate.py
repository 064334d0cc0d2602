"""`tailorbird validate`: check a topology by itself and against the columns of its servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Topology
from tailorbird.cli.cli_schemas import ask_servers
from tailorbird.operate.status.selection import MOST, ListChoice


def validate(
    file: str = typer.Argument(help="The topology, e.g. topologies/shop.yml."),
    as_json: bool = typer.Option(False, "--json", help="Print the tables and their columns as JSON."),
    schemas: Annotated[
        Path | None,
        typer.Option(
            "--schemas", help="Check types and keys against this file (one schema record per line), not servers."
        ),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Query no server.")] = False,
    search: Annotated[str, typer.Option("--search", help="Print only tables that contain all of these words.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Print at most this many tables.")] = MOST,
) -> None:
    """Check a topology file, and its queries against the databases' columns.

    Exit code 0: it is valid. Exit code 2: one line `file:line: path: what, expected what` describes the first error.

    The queries are compiled with the tables of all reachable sources. Unknown columns, joins that miss a key and
    incompatible types are errors. Text keys whose collation equates different bytes cause warnings. Tables that could
    not be checked are listed.

    Example: tailorbird validate topologies/shop.yml
    """
    from cdc.process.file_topology import read_file
    from tailorbird.cli.join.cli_explain import schemas_in
    from tailorbird.operate.doctor.validate import validate as check

    topology = read_file(file)
    columns, unchecked = check(topology), list[str]()
    if schemas is not None:
        _compile(topology, schemas_in(schemas))
    elif not offline:
        known, unchecked = _asked(topology)
        columns = check(topology, known)
        _compile(topology, known)
    selection = ListChoice(search=search, limit=limit)
    columns = dict(selection.matching(columns.items(), lambda one: f"{one[0]} {' '.join(one[1] or ())}"))
    if as_json:
        reported = {"topology": topology.name, "tables": columns, **({"unchecked": unchecked} if unchecked else {})}
        typer.echo(json.dumps(reported))
        return
    for line in selection.lines(list(columns.items()), _table_lines, lambda _: "valid", lambda _: True):
        typer.echo(line)
    parts = (
        (len(topology.sources), "source", "sources"),
        (len(topology.tables), "table", "tables"),
        (len(topology.indexes), "index", "indexes"),
        (len(topology.dashboards), "dashboard", "dashboards"),
    )
    typer.echo(f"{file} is valid: " + ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in parts))
    for what in unchecked:
        typer.echo(f"not checked: {what}", err=True)


def _table_lines(one: tuple[str, list[str] | None]) -> Iterator[str]:
    table, names = one
    yield f"{table}: {', '.join(names or ['every column'])}"


def _asked(topology: Topology) -> tuple[Mapping[TableId, TableSchema], list[str]]:
    """Return the schemas of the tables that queries read, and the reasons why others are unknown.

    Raises UsageError for a table that capture would refuse."""
    from cdc.model.errors import UsageError
    from joins.select.parser import tables_of

    read = {name: tables_of(topology, table) for name, table in topology.tables.items()}
    asked = ask_servers(topology, frozenset[TableId]().union(*read.values()))
    if asked.faults:
        first = asked.faults[0]
        raise UsageError(f"{topology.file}: {first.subject}: {first.check}: {first.found}", first.remedy)
    left = [name for name, tables in read.items() if not tables <= set(asked.schemas)]
    return asked.schemas, [f"columns, keys and types of {', '.join(left)}: {why}" for why in asked.unchecked if left]


def _compile(topology: Topology, schemas: Mapping[TableId, TableSchema]) -> None:
    from tailorbird.cli.join.cli_explain import warn
    from tailorbird.operate.doctor.validate import judged

    for name, warnings in judged(topology, schemas).items():
        warn(name, warnings)
