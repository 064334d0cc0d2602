"""`tailorbird poll`: prepare sources that are polled."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cdc.model.errors import UsageError

app = typer.Typer(
    no_args_is_help=True,
    help="Prepare sources with `capture: poll`.\n\nExample: tailorbird poll ddl topologies/polled.yml",
)


@app.callback()
def _poll() -> None:
    """Do nothing. Typer needs this function to treat `ddl` as a sub-command although it is the only one."""


@app.command("ddl")
def ddl(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    source: Annotated[str | None, typer.Option("--source", help="Only this source.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only this table, `table` or `database.table`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per table and line.")] = False,
) -> None:
    """Print the DDL that adds the cursor column and its index to polled tables.

    Contacts no server. Review the statements, then run them with your migration tool.

    Example: tailorbird poll ddl topologies/polled.yml --table orders
    """
    from cdc.process.file_topology import load_topology
    from ingest.poll.ddl import dialect_of, statements

    topology = load_topology(file)
    if source is not None and source not in topology.sources:
        raise UsageError(f"{file} has no source {source}", "--source " + " | ".join(topology.sources))
    found = 0
    for one in topology.sources.values():
        if one.poll is None or source not in (None, one.name):
            continue
        for table_id in one.tables:
            if table not in (None, table_id.table, f"{table_id.database}.{table_id.table}", table_id.name):
                continue
            found += 1
            sql = statements(dialect_of(one), table_id, one.poll)
            if as_json:
                typer.echo(json.dumps({"source": one.name, "table": str(table_id), "statements": sql}))
            else:
                typer.echo("\n".join(f"{statement};" for statement in sql))
    if not found:
        raise UsageError(f"{file} polls no such table", "choose a table of a source with `capture: poll`")
