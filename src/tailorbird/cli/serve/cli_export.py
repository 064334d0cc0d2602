"""`tailorbird export`: captured tables as files, or as topics in another format."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer


def export(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    form: Annotated[Literal["avro", "parquet", "maxwell", "debezium"], typer.Option("--format", help="What to write.")],
    to: Annotated[str, typer.Option("--to", help="A folder, or kafka://HOST:PORT/PREFIX (maxwell, debezium).")],
    table: Annotated[list[str] | None, typer.Option("--table", help="SOURCE.TABLE; again for more. Else all.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Changes of a file, or of a commit, at most.")] = 20_000,
    every: Annotated[float, typer.Option("--every", min=1, help="With --follow: seconds until they are written.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="At the end: changes by table, as one JSON object.")] = False,
) -> None:
    """Write the changes of captured tables to files or topics, each exactly once.

    An export that was killed resumes where it stopped; run the same command again.

    Files appear whole, and say in their names where the next one begins; topics get the position with the records.
    Without --follow it ends once all that is committed now is written.

    Example: tailorbird export topologies/shop.yml --table shop.orders --format parquet --to lake
    """
    # imported here: the clients of Kafka cost what `--help` should not
    from ingest.export.run_export import ExportOptions, run

    options = ExportOptions(form=form, to=to, tables=tuple(table or ()), follow=follow, rows=rows, every=every)
    found = run(file, options)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        for name, count in found.items():
            typer.echo(f"{name}  {count:,} changes")
