"""`tailorbird tail`: print a table's changes as they arrive."""

from __future__ import annotations

import json
from itertools import islice
from typing import Annotated

import typer


def tail(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="SOURCE.TABLE, or TABLE if only one source has it.")],
    beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Everything in the log, then new changes.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Exit after this many changes.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print Debezium envelopes, one per line, for programs.")
    ] = False,
) -> None:
    """Print the changes of a captured table, in the source's order, until Ctrl-C.

    Example: tailorbird tail topologies/shop.yml shop.orders
    """
    # imported here: the Kafka clients would slow down `--help`
    from cdc.formats.debezium import to_envelope
    from cdc.process.file_topology import load_topology
    from ingest.changes.change_line import line_of
    from ingest.changes.run_changes import tail as changes

    topology = load_topology(file)
    for event, schema in islice(changes(topology, table, beginning=beginning, stopped=lambda: False), limit):
        if as_json:
            typer.echo(json.dumps(to_envelope(event, topology.name), ensure_ascii=False))
        else:
            typer.echo(line_of(event, schema))
