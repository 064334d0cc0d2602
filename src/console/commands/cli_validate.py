"""`tailorbird validate`: is this topology right, as far as it can be told without a server?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cdc.topology.topology import Topology


def validate(
    file: str = typer.Argument(help="The topology, e.g. topologies/shop.yml."),
    as_json: bool = typer.Option(False, "--json", help="Print the tables and their columns as JSON."),
    schemas: Annotated[
        Path | None,
        typer.Option(
            "--schemas", help="Check types and keys, too, by this file (a record of the schemas topic per line)."
        ),
    ] = None,
) -> None:
    """Check a topology: exit 0 if it is right, else one line `file:line: path: what, expected what` and exit 2.

    With schemas the queries are compiled: types that do not fit are mistakes, and text keys that join at their source
    by more than their bytes are told as warnings.

    Example: tailorbird validate topologies/shop.yml
    """
    from cdc.process.file_topology import load_topology
    from console.doctor.validate import validate as check

    topology = load_topology(file)
    columns = check(topology)
    if schemas is not None:
        _compile(topology, schemas)
    if as_json:
        typer.echo(json.dumps({"topology": topology.name, "tables": columns}))
        return
    for table, names in columns.items():
        typer.echo(f"{table}: {', '.join(names or ['every column'])}")
    typer.echo(
        f"{file} is right: {len(topology.sources)} sources, {len(topology.tables)} tables,"
        f" {len(topology.indexes)} indexes, {len(topology.dashboards)} dashboards"
    )


def _compile(topology: Topology, file: Path) -> None:
    from console.commands.join.cli_explain import schemas_in, warn
    from console.doctor.validate import judged

    for name, warnings in judged(topology, schemas_in(file)).items():
        warn(name, warnings)
