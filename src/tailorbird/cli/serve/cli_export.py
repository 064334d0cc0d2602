"""`tailorbird export`: write captured tables to files, or to topics in another format."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer


def export(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    form: Annotated[
        Literal["avro", "parquet", "maxwell", "debezium", "debezium-avro"],
        typer.Option("--format", help="The output format."),
    ],
    to: Annotated[
        str, typer.Option("--to", help="A folder, or kafka://HOST:PORT/PREFIX (maxwell, debezium, debezium-avro).")
    ],
    table: Annotated[
        list[str] | None, typer.Option("--table", help="SOURCE.TABLE. May be repeated. Default: all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new changes until Ctrl-C.")] = False,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Maximum changes per file or commit.")] = 20_000,
    every: Annotated[float, typer.Option("--every", min=1, help="With --follow: maximum seconds between writes.")] = 60,
    registry: Annotated[
        str, typer.Option("--schema-registry", metavar="URL", help="Schema registry, for debezium-avro.")
    ] = "",
    registry_ca: Annotated[
        str, typer.Option("--schema-registry-ca", metavar="FILE", help="CA of the registry's certificate (PEM).")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="At the end: changes by table, as one JSON object.")] = False,
) -> None:
    """Write the changes of captured tables to files or topics, each exactly once.

    If an export is killed, the same command resumes it.

    Files appear atomically, and their names contain the offset of the next one. Topics receive the position together
    with the records. Without --follow, the export ends after writing everything committed so far.

    With debezium-avro, a schema registry has the schemas of keys and values. Its login is the environment variable
    TAILORBIRD_SCHEMA_REGISTRY_LOGIN, USER:PASSWORD.

    Example: tailorbird export topologies/shop.yml --table shop.orders --format parquet --to lake

    Example: tailorbird export topologies/shop.yml --format debezium-avro --schema-registry http://127.0.0.1:8081
    --to kafka://127.0.0.1:9092/av --follow
    """
    # imported here: the Kafka clients would slow down `--help`
    from ingest.export.run_export import ExportOptions, run

    options = ExportOptions(
        form=form, to=to, tables=tuple(table or ()), follow=follow, rows=rows, every=every, registry=registry,
        registry_ca=registry_ca,
    )  # fmt: skip
    found = run(file, options)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        for name, count in found.items():
            typer.echo(f"{name}  {count:,} changes")
