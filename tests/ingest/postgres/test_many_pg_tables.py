"""The catalog of thousands of tables is read in a time that grows with their number, not with its square."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from cdc.topology.topology import Source
from ingest.postgres import pg_schema
from ingest.postgres.column_types import PgType, PgTypes
from ingest.postgres.pg_connection import PgConnection

COLUMNS = 4


class ScriptedCatalog:
    """A connection to a server with so many tables."""

    version = 180_000

    def __init__(self, tables: int) -> None:
        self.oids = [str(16_384 + number) for number in range(tables)]

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """All queries read the same state."""
        yield

    def texts(self, sql: str) -> list[tuple[str, ...]]:
        """Return the rows of one of the catalog's queries."""
        if sql.startswith("SELECT n.nspname, c.relname"):
            return [("public", f"t{oid}", oid, "d", "r") for oid in self.oids]
        if sql.startswith("SELECT a.attrelid"):
            each = [("23", "-1", "t", "f", "", "f"), *[("25", "-1", "f", "f", "", "f")] * (COLUMNS - 1)]
            return [(oid, f"c{number}", *one) for oid in self.oids for number, one in enumerate(each)]
        if sql.startswith("SELECT i.indrelid"):
            return [(oid, f"t{oid}_pkey", "t", "f", "c0") for oid in self.oids]
        assert sql.startswith("WITH RECURSIVE"), sql
        return [(oid, oid, "public", f"t{oid}", "r", "p", "d", "t", "f", "f", "", oid) for oid in self.oids]


def test_reading_the_catalog_is_linear_in_the_number_of_tables() -> None:
    """A loop over all columns for each table took two minutes with 5,000 tables of 20 columns."""
    catalog = ScriptedCatalog(5000)
    types = PgTypes(lambda: [PgType(oid=23, name="int4"), PgType(oid=25, name="text")])
    source = Source(
        name="s", type="postgresql", hostname="localhost", port=1, username="u", password="", database="public",
        tables=(), server_id=1, snapshot_mode="initial", filter_policy="accept",
    )  # fmt: skip
    began = time.process_time()
    found = pg_schema.shown(cast(PgConnection, catalog), source, "true", types)
    assert time.process_time() - began < 3
    assert len(found) == 5000
    last = found["public", f"t{catalog.oids[-1]}"]
    assert [column.column_type for column in last.definition.columns] == ["int", *["longtext"] * (COLUMNS - 1)]
    assert (last.definition.keys[0].columns, [one.oid for one in last.members]) == (("c0",), [last.oid])
    first = found["public", f"t{catalog.oids[0]}"]
    assert first.definition.columns[0] is last.definition.columns[0]  # equal columns share memory
