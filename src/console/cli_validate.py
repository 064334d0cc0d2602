"""`tailorbird validate`: is this topology right, as far as it can be told without a server?"""

from __future__ import annotations

import json

import typer


def validate(
    file: str = typer.Argument(help="The topology, e.g. topologies/shop.yml."),
    as_json: bool = typer.Option(False, "--json", help="Print the tables and their columns as JSON."),
) -> None:
    """Check a topology: exit 0 if it is right, else one line `file:line: path: what, expected what` and exit 2.

    Example: tailorbird validate topologies/shop.yml
    """
    from console.file_topology import load_topology
    from console.validate import validate as check

    topology = load_topology(file)
    columns = check(topology)
    if as_json:
        typer.echo(json.dumps({"topology": topology.name, "tables": columns}))
        return
    for table, names in columns.items():
        typer.echo(f"{table}: {', '.join(names or ['every column'])}")
    typer.echo(
        f"{file} is right: {len(topology.sources)} sources, {len(topology.tables)} tables,"
        f" {len(topology.indexes)} indexes, {len(topology.dashboards)} dashboards"
    )
