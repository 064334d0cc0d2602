"""`tailorbird explain`: trace a row's cells back to source events."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def explain(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The joined table.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help='The row\'s key as JSON: 7, "a", or "a",7.')],
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column. May be repeated. Default: all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Show which source events the cells of a joined row come from.

    For each cell: the record in the log, when it was committed (GTID, file and position), and whether it contains the
    cell's value. `tailorbird explain-plan` shows what a query does. Reads only. Exit code 0: all events were found; 1:
    an event contradicts its cell; 2: usage error, or there is no such row; 3: an event is gone, for example by
    compaction, or a server is unavailable.

    Example: tailorbird explain topologies/shop.yml orders_wide 7 --column customer
    """
    # imported here: the clients of all servers take half a second
    from cdc.model.errors import Retriable, UsageError
    from cdc.process.file_topology import load_topology
    from tailorbird.verify.explain.explanation_text import json_of, lines_of
    from tailorbird.verify.explain.run_explain import Explainer, keys_of
    from tailorbird.verify.findings import DIFFERENT, UNLOGGED

    topology = load_topology(file)
    try:
        with Explainer(topology, table) as explainer:
            found = explainer.explain(dict(keys_of(explainer.layout, key)), column or ())
    except Retriable as error:  # 1 would mean that an event contradicts its cell
        typer.echo(f"tailorbird: {error}", err=True)
        raise typer.Exit(UNLOGGED) from error
    if found is None:
        raise UsageError(f"{table} has no row {key}", "if it was written just now, run `tailorbird wait` first")
    typer.echo(json.dumps(json_of(found), ensure_ascii=False) if as_json else "\n".join(lines_of(found)))
    raise typer.Exit(DIFFERENT if found.differs else 0 if found.reported else UNLOGGED)
