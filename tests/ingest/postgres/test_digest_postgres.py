"""The digest that PostgreSQL computes in SQL equals that of its rows as the snapshot reader has them, for every type
and many values; types that stores print differently are excluded."""

from __future__ import annotations

import pytest

from cdc.merkle.canonical import RowText, covered
from cdc.merkle.leaves import LeafOf, grid_of
from cdc.merkle.tree import Leaves, delta
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.events.log_events import RefusedImage
from ingest.postgres.pg_connection import PgConnection, connected
from ingest.postgres.pg_digest import digests_of, tables_now
from ingest.postgres.relations import TableShown
from tests.ingest.postgres.test_types_postgres import MADE, MATRIX, REFUSED
from tests.support.pg_captured import Capture

# SQL type of a key, and values of it: leaves by number, by day, by second and by the key's hash
KEYS = {
    "int2": ("-32768", "-1", "0", "1023", "1024"),
    "int4": ("-2147483648", "-1025", "0", "7", "2147483647"),
    "int8": ("-9223372036854775808", "-1", "0", "1024", "9223372036854775807"),
    "oid": ("0", "4294967295"),
    "numeric(8,3)": ("-1.5", "0", "12345.678"),
    "numeric": ("-1.50", "0", "1e40"),
    "bool": ("true", "false"),
    "date": ("'0001-01-01'", "'1970-01-01'", "'2024-02-29'", "'9999-12-31'", "'infinity'", "'0044-03-15 BC'"),
    "timestamp": ("'0001-01-01'", "'1969-12-31 23:59:59.999999'", "'2024-02-29 12:00:00.5'", "'-infinity'"),
    "timestamptz": ("'0001-01-01 00:00+00'", "'2024-02-29 12:00:00+14'", "'9999-12-31 23:59:59.999999+00'"),
    "time": ("'00:00'", "'10:00:00.25'", "'24:00:00'"),
    "text": ("''", "'a'", "'A '", "'ß😀'", "'a,b'", "repeat('x', 900)"),
    "varchar(9)": ("'a  '", "'1:'"),
    "char(5)": ("'ab'", "''"),
    "bytea": (r"'\x'", r"'\x00ff'"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
    "inet": ("'10.0.0.1/8'", "'::1'"),
    "interval": ("'1 month'", "'-1 day 2 hours'"),
    "mood": ("'sad'", "'ok'"),
    "posint": ("1", "2000"),
}
# Values for one row: separators, padding, NULL and empty texts, a row value of NULLs
VALUES = {
    "text": ("','", "''", "'1:'", r"'a\b'", "repeat('é', 5000)", "'\n'"),
    "numeric(12,2)": ("-0.00", "9999999999.99", "'NaN'"),
    "numeric": ("'Infinity'", "1e-20", "1.10"),
    "pair": ("ROW(NULL, NULL)", "ROW(1, ',')", "NULL"),
    "date": ("'infinity'", "'0001-01-01 BC'", "'10000-01-01'"),
    "timestamp(3)": ("'2024-02-29 10:00:00.5'", "'infinity'", "'9999-12-31 23:59:59.999'"),
    "timestamptz": ("'2024-03-31 02:30:00+01'", "'0001-01-01 00:00 BC'"),
    "bit(1)": ("B'0'", "B'1'"),
    "bit(9)": ("B'000000001'",),
    "money": ("-1.5", "0"),
    "bytea": (r"'\x'", r"'\x2c'"),
    "time(2)": ("'10:12:00.25'", "'24:00'"),
}


@pytest.mark.integration
def test_postgres_digests_equal_ours(capture: Capture) -> None:
    """Each type as a column, each possible key type as a key: leaf by leaf, in total, and each leaf alone."""
    captured = capture("[]", ", filter_policy: accept")
    statements = list(MADE)
    for n, (kind, literal, _, _) in enumerate(MATRIX):
        statements.append(f"CREATE TABLE m{n} (id INT PRIMARY KEY, c {kind})")
        statements.append(f"INSERT INTO m{n} VALUES (0, NULL), (700, {literal}), (-1400, {literal})")
    for n, (kind, literal) in enumerate(REFUSED):
        statements.append(f"CREATE TABLE r{n} (id INT PRIMARY KEY, c {kind})")
        statements.append(f"INSERT INTO r{n} VALUES (0, NULL), (70000, {literal})")
    for n, (kind, literals) in enumerate(VALUES.items()):
        statements.append(f"CREATE TABLE v{n} (id INT PRIMARY KEY, c {kind}, n INT)")
        statements += [f"INSERT INTO v{n} VALUES ({at * 1024}, {one}, NULL)" for at, one in enumerate(literals)]
    for n, (kind, literals) in enumerate(KEYS.items()):
        statements.append(f"CREATE TABLE k{n} (c {kind} PRIMARY KEY, n INT)")
        statements += [f"INSERT INTO k{n} VALUES ({one}, {at})" for at, one in enumerate(literals)]
    captured.sql(*statements)
    source = captured.topology.sources["shop"]
    with connected(source) as connection:
        tables = tables_now(connection, source)
        assert len(tables) == len(MATRIX) + len(REFUSED) + len(VALUES) + len(KEYS)
        wrong = [found for schema, shown in tables.values() if (found := differs(connection, source, schema, shown))]
    assert wrong == []
    out = {MATRIX[n][0] for n in range(len(MATRIX)) if covered(_schema(tables, f"m{n}")).left_out}
    assert out == {kind for kind, _, column_type, _ in MATRIX if column_type in ("float", "double", "json")}


def _schema(tables: dict[TableId, tuple[TableSchema, TableShown]], name: str) -> TableSchema:
    return next(schema for schema, _ in tables.values() if schema.table_id.table == name)


def differs(connection: PgConnection, source: Source, schema: TableSchema, shown: TableShown) -> str:
    """Return the errors of a table's digests; empty if the server's equal ours."""
    what, grid = covered(schema), grid_of(schema)
    digests = digests_of(connection, source, schema, what, grid, shown)
    text, leaf, ours, refused = RowText(what.forms), LeafOf(grid, what), Leaves(), set[int]()
    images, name = list(digests.rows(0, grid.last)), schema.table_id.table
    assert images, name
    for image in images:
        if isinstance(image, RefusedImage):
            refused.add(leaf({name: image.values[name] for name in schema.primary_key}))
        else:
            ours.add(leaf(image), delta(None, text.hash(image)))
    theirs = digests.of_leaves(0, grid.last)
    if {one: digest for one, digest in theirs.items() if one not in refused} != {
        one: digest for one, digest in ours.digests.items() if one not in refused
    }:
        texts = connection.texts(f"SELECT {digests.sql.text()}, {digests.sql.leaf()} FROM public.{name}")
        return f"{name}: {texts[:8]} {[(text(i), leaf(i)) for i in images if isinstance(i, dict)][:8]}"
    if not refused and digests.of_range(0, grid.last) != ours.total():
        return f"{name}: its total differs"
    for one in list(theirs):
        found = list(digests.rows(one, one))
        if len(found) != theirs[one].count or digests.of_leaves(one, one) != {one: theirs[one]}:
            return f"{name}: leaf {one} alone is another"
    keys = [{name: image[name] for name in schema.primary_key} for image in images if isinstance(image, dict)]
    if len(list(digests.keyed(keys))) != len(keys):
        return f"{name}: rows cannot be found by their keys"
    return ""
