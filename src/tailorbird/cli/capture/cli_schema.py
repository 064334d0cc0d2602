"""`tailorbird schema`: define the columns of a captured table by hand."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Define columns of quarantined tables.\n\nExample: tailorbird schema set shop.yml shop.t 'CREATE TABLE t (…)'",
)


@app.command("set")
def set_schema(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="source.table or source.database.table.")],
    statement: Annotated[str, typer.Argument(metavar="DDL", help="The CREATE TABLE statement with its columns.")],
) -> None:
    """Define the columns of a quarantined table; its stored rows are then published.

    They must be the columns that the table had when the stored rows were written. The capture logs the result.

    Example: tailorbird schema set topologies/shop.yml shop.orders "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)"
    """
    from cdc.model.errors import UsageError
    from cdc.process.file_topology import load_topology
    from cdc.process.kafka_grants import granted
    from ingest.ddl.catalog import Catalog
    from ingest.ddl.dialect import dialect_of
    from ingest.ddl.statements import apply
    from ingest.log.kafka_signals import send

    topology = granted(load_topology(file, "operator"), "operator")
    found = topology.table_named(table)
    if found is None:
        raise UsageError(f"{table} is not a captured table of {file}", "write source.table, e.g. shop.orders")
    source = topology.sources[found.source]
    catalog = Catalog(default_charset="utf8mb4", databases={found.database: "utf8mb4"})
    dialect = dialect_of("mariadb" if source.type == "mariadb" else "mysql")
    applied = apply(catalog, statement, database=found.database, dialect=dialect)
    if applied.error or len(applied.changed) != 1:
        raise UsageError(
            f"the statement does not create one table: {applied.error or 'none or several'}",
            "write one CREATE TABLE statement",
        )
    (made,) = applied.changed.values()
    schema = made.schema(found, 1).to_json()
    data = {
        "data-collections": [found.name],
        "columns": schema["columns"],
        "primary-key": schema["primary_key"],
    }
    send(topology, found.source, {"type": "schema-set", "data": data})
    typer.echo(f"{found}: {len(schema['columns'])} columns sent")
