"""`tailorbird poll`: prepare sources that are polled, and assign the numbers of feeds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.model.errors import UsageError
from tailorbird.cli.serve.metrics_port import MetricsPort

if TYPE_CHECKING:
    from cdc.model.schema import TableId
    from cdc.topology.topology import Source, Topology

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Prepare sources with `capture: poll`, and assign the numbers of feeds.\n\n"
        "Example: tailorbird poll ddl topologies/polled.yml"
    ),
)


@app.callback()
def _poll() -> None:
    """Do nothing: the sub-commands do the work."""


@app.command("ddl")
def ddl(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    source: Annotated[str | None, typer.Option("--source", help="Only this source.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only this table, `table` or `database.table`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per table and line.")] = False,
) -> None:
    """Print the DDL that adds the cursor column and its index to polled tables.

    Contacts no server. Review the statements, then run them with your migration tool.

    Example: tailorbird poll ddl topologies/polled.yml --table customers
    """
    from cdc.process.file_topology import load_topology
    from ingest.poll.ddl import dialect_of, statements

    for one, table_id in _polled(load_topology(file), source, table):
        assert one.poll is not None, "it is polled"
        sql = statements(dialect_of(one), table_id, one.poll)
        if as_json:
            typer.echo(json.dumps({"source": one.name, "table": str(table_id), "statements": sql}))
        else:
            typer.echo("\n".join(f"{statement};" for statement in sql))


@app.command("assign")
def assign(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    source: Annotated[str | None, typer.Option("--source", help="The source, if several have `mode: feed`.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only this table, `table` or `database.table`.")] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", envvar="TAILORBIRD_FEED_URL", help="Login that may UPDATE. Default: the source's URL."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when every row has a number.")] = False,
    first: Annotated[
        int, typer.Option("--first", help="The least number to assign, if the table already had numbers.")
    ] = 0,
    metrics_port: MetricsPort = 0,
) -> None:
    """Assign numbers to changed rows of sources with `mode: feed`, until stopped.

    Changed rows have no number (`tailorbird poll ddl` creates the trigger). They get the next ones after the commit of
    their transaction, at most `limit` rows at a time, every `interval`. Both are keys of the source.

    Example: tailorbird poll assign topologies/polled.yml --source crm
    """
    from cdc.process.file_topology import load_topology
    from ingest.poll.run_assign import run

    found = [
        (one, each)
        for one, each in _polled(load_topology(file), source, table)
        if one.poll is not None and one.poll.mode == "feed"
    ]
    names = sorted({one.name for one, _ in found})
    if len(names) != 1:
        what = f"{len(names) or 'no'} sources of {file} have `mode: feed`"
        raise UsageError(what, f"--source {' | '.join(names)}" if names else "set `mode: feed` of a polled source")
    chosen = found[0][0]
    address = url or chosen.url
    if not address:
        raise UsageError(f"source {chosen.name} has no URL", "set TAILORBIRD_FEED_URL, as SQLAlchemy writes it")
    if first and len(found) != 1:
        raise UsageError("--first is for one table", "--table " + " | ".join(each.table for _, each in found))
    tables = [each for _, each in found]
    total = run(chosen, tables, address, once=once, metrics_port=metrics_port, first=first)
    if once:
        typer.echo(f"{total} rows of {chosen.name} got a number")


def _polled(topology: Topology, source: str | None, table: str | None) -> list[tuple[Source, TableId]]:
    """Return the polled tables that the options choose, with their sources. Raises UsageError if there is none."""
    if source is not None and source not in topology.sources:
        raise UsageError(f"{topology.file} has no source {source}", "--source " + " | ".join(topology.sources))
    found = [
        (one, each)
        for one in topology.sources.values()
        if one.poll is not None and source in (None, one.name)
        for each in one.tables
        if table in (None, each.table, f"{each.database}.{each.table}", each.name)
    ]
    if not found:
        what = f"{topology.file} polls no such table"
        raise UsageError(what, "choose a table of a source with `capture: poll`")
    return found
