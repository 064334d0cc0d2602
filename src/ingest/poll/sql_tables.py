"""List the tables and columns of any database that SQLAlchemy supports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import sqlalchemy as sa
from sqlalchemy.engine.reflection import ObjectKind

from cdc.topology.topology import Source
from ingest.poll.sql_reader import connected, translated

Columns = tuple[tuple[str, str], ...]


def sql_tables(source: Source, schemas: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Columns]]]:
    """Yield (schema, its tables and views with the names and types of their columns).

    Raises Retriable if the database is unavailable, UsageError for a wrong URL or a missing driver.
    """
    with connected(source) as connection:
        for schema in schemas:
            with translated(source, f"list the tables of {schema}"):
                described = sa.inspect(connection).get_multi_columns(schema=schema, kind=ObjectKind.ANY)
                found = {
                    name: tuple((str(one["name"]), str(one["type"])) for one in columns)
                    for (_, name), columns in sorted(described.items())
                }
            yield schema, found
