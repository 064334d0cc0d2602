"""Compute digests of tables in a MySQL or MariaDB server, equal to those of `cdc.merkle` over the same rows.

The session must come from `connected`: in UTC, in utf8mb4, with an empty sql_mode (otherwise PAD_CHAR_TO_FULL_LENGTH
pads CHAR). A value whose server text is already canonical is passed directly to CONCAT_WS, because each function costs
as much as the hash. During the computation, string literals of the session are bytes. Then texts are not converted,
LENGTH counts bytes, and results of SHA2 can be XORed. MySQL 8.0 XORs binary strings. Older versions and MariaDB XOR
only 64-bit numbers, so four such numbers are used, cut from one hash in a variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pymysql.cursors import SSCursor

from cdc.merkle.canonical import CoveredColumns, Form
from cdc.merkle.leaves import HASH_BITS, MIDDLE, SHIFT, Grid, bounds
from cdc.merkle.tree import Digest
from cdc.model.schema import Column, TableSchema
from cdc.topology.topology import Source
from ingest.events.log_events import Image, Row
from ingest.events.stand_in import stand_in
from ingest.events.values import from_text, image_of
from ingest.mysql.mysql_connection import Connection, query, translated
from ingest.mysql.mysql_snapshot import KEYS
from ingest.records import chunks

_WIDE_XOR = (8, 0)  # MySQL's first version in which BIT_XOR accepts binary strings
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSql:
    """Builds the SQL statements for the digests of one table. `schema` has the server's current column types.

    `wide`: the server XORs binary strings. `stands_in`: capture published invalid days (0000-00-00, the 31st of
    February) as NULL, so they count as NULL here.
    """

    schema: TableSchema
    covered: CoveredColumns
    grid: Grid
    wide: bool
    stands_in: bool = False

    def text(self) -> str:
        """Return the SQL expression of a row's canonical text."""
        return self._joined(self.covered.forms)

    def leaf(self) -> str:
        """Return the SQL expression of a row's leaf number."""
        column = chunks.quoted(self.grid.column)
        match self.grid.kind:
            case "integer":
                return f"(({column} ^ {MIDDLE}) >> {SHIFT})"
            case "unsigned":
                return f"({column} >> {SHIFT})"
            case "day":
                return f"TO_DAYS({column})"
            case "second":
                return f"(TO_SECONDS({column}) >> {SHIFT})"
        forms = {form.name: form for form in self.covered.forms}
        key = self._joined([forms[name] for name in self.covered.key])
        return f"CAST(CONV(LEFT(SHA2({key}, 256), {HASH_BITS // 4}), 16, 10) AS UNSIGNED)"

    def of_leaves(self, first: int, last: int) -> str:
        """Return the query for the digest of each leaf from `first` to `last` that has rows.

        Its columns are leaf, row count, and the XOR of the hashes in one part or in four.
        """
        return (
            f"SELECT {self.leaf()} AS leaf, {self._digest()} FROM {self._name()}{self.where(first, last)} GROUP BY leaf"
        )

    def of_range(self, first: int, last: int) -> str:
        """Return the query for one digest of all rows in the leaves `first` to `last`: row count, and the XOR of the
        hashes.

        It costs half as much as `of_leaves`.
        """
        return f"SELECT {self._digest()} FROM {self._name()}{self.where(first, last)}"

    def rows(self, first: int, last: int, among: Sequence[int] = ()) -> str:
        """Return the query for the rows of the leaves `first` to `last`, in the form of a snapshot.

        If `among` is not empty, only these leaves are read.
        """
        condition = self.where(first, last).removeprefix(" WHERE ")
        if among:
            condition = f"{self.leaf()} IN ({', '.join(map(str, among))})"
        return chunks.select_all(self.schema, condition)

    def where(self, first: int, last: int) -> str:
        """Return the condition for rows in the leaves `first` to `last`; empty if these are all leaves."""
        edges = bounds(self.grid, first, last)
        if edges is None:
            if (first, last) == (0, self.grid.last):
                return ""
            return f" WHERE {self.leaf()} BETWEEN {first} AND {last}"
        column = chunks.quoted(self.grid.column)
        parts = [f"{column} {sign} {edge}" for sign, edge in zip((">=", "<"), edges, strict=True) if edge]
        if self.grid.kind in ("day", "second") and (key := self.schema.column(self.grid.column)) is not None:
            parts.append(_is_day(key))  # a row whose key is no valid day was not published, so it belongs to no leaf
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _joined(self, forms: Sequence[Form]) -> str:
        parts = []
        for form in forms:
            column = self.schema.column(form.name)
            assert column is not None, "what is covered is a column"
            part, nullable = _part(form, column), column.nullable
            if self.stands_in and form.kind in ("day", "moment"):
                part, nullable = f"IF({_is_day(column)}, {part}, NULL)", True
            elif form.kind == "geometry":
                # MariaDB fills an added NOT NULL column with an empty geometry, which has no canonical form
                size = "= 25" if column.column_type.lower() == "point" else ">= 9"
                part, nullable = f"IF(LENGTH({chunks.quoted(form.name)}) {size}, {part}, NULL)", True
            parts.append(f"IFNULL({part}, '')" if nullable else part)
        return f"CONCAT_WS(',', {', '.join(parts)})"

    def _digest(self) -> str:
        # COUNT(*), and a digest that is NULL or zeros without rows, depending on the version
        if self.wide:
            return f"COUNT(*), HEX(BIT_XOR(LEFT(SHA2({self.text()}, 256), 32)))"
        parts = [f"LEFT(@tailorbird := SHA2({self.text()}, 256), 8)"]
        parts += [f"SUBSTRING(@tailorbird, {at}, 8)" for at in (9, 17, 25)]
        return "COUNT(*), " + ", ".join(f"BIT_XOR(CAST(CONV(HEX({part}), 16, 10) AS UNSIGNED))" for part in parts)

    def _name(self) -> str:
        return f"{chunks.quoted(self.schema.table_id.database)}.{chunks.quoted(self.schema.table_id.table)}"


def digest_sql(
    connection: Connection, schema: TableSchema, covered: CoveredColumns, grid: Grid, *, stands_in: bool = False
) -> DigestSql:
    """Return the statement builder of a table for the connected server."""
    version = str(query(connection, "SELECT VERSION()")[0][0])
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    wide = "mariadb" not in version.lower() and numbers >= _WIDE_XOR
    return DigestSql(schema=schema, covered=covered, grid=grid, wide=wide, stands_in=stands_in)


def leaf_digests(connection: Connection, source: Source, sql: DigestSql, first: int, last: int) -> dict[int, Digest]:
    """Return the digest of each leaf from `first` to `last` that has rows, as the connection's transaction sees
    them."""
    with translated(source, f"compute digests of {sql.schema.table_id}"), _in_bytes(connection):
        found = query(connection, sql.of_leaves(first, last))
    return {int(row[0]): _digest(row[1:]) for row in found if row[0] is not None}


def range_digest(connection: Connection, source: Source, sql: DigestSql, first: int, last: int) -> Digest:
    """Return one digest of all rows in the leaves `first` to `last`."""
    with translated(source, f"compute a digest of {sql.schema.table_id}"), _in_bytes(connection):
        return _digest(query(connection, sql.of_range(first, last))[0])


def leaf_rows(
    connection: Connection, source: Source, sql: DigestSql, first: int, last: int, among: Sequence[int] = ()
) -> Iterator[Image]:
    """Yield the rows of the leaves `first` to `last` (or of those in `among`) as images, as a snapshot does."""
    yield from _images(connection, source, sql.schema, sql.rows(first, last, among))


def keyed_rows(connection: Connection, source: Source, sql: DigestSql, keys: Sequence[Row]) -> Iterator[Image]:
    """Yield the rows with these keys as images. The table's key must be `walkable`."""
    for at in range(0, len(keys), KEYS):
        yield from _images(connection, source, sql.schema, chunks.select_keys(sql.schema, keys[at : at + KEYS]))


def _images(connection: Connection, source: Source, schema: TableSchema, statement: str) -> Iterator[Image]:
    readers = [(column.name, from_text(column)) for column in schema.columns]
    cursor = connection.cursor(SSCursor)
    with translated(source, f"read rows of {schema.table_id}"):
        cursor.execute(statement)
        while rows := cursor.fetchmany(1000):
            for row in rows:
                yield stand_in(image_of(readers, row), schema, source.unrepresentable)
        cursor.close()


def _digest(row: Sequence[Any]) -> Digest:
    count, *parts = row
    if not int(count):
        return Digest()
    if len(parts) == 1:
        return Digest(int(count), int(parts[0], 16))
    return Digest(int(count), int.from_bytes(b"".join((int(part) & _MASK).to_bytes(8, "big") for part in parts), "big"))


@contextmanager
def _in_bytes(connection: Connection) -> Iterator[None]:
    """Make strings in the session's SQL expressions binary while the block runs."""
    query(connection, "SET collation_connection = 'binary'")
    try:
        yield
    finally:
        query(connection, "SET NAMES utf8mb4")


def _is_day(column: Column) -> str:
    """Return the SQL condition that a date or time is on an existing day of the years 1 to 9999.

    Only such a day stays the same if the server converts it to a day number and back.
    """
    name = chunks.quoted(column.name)
    return f"FROM_DAYS(TO_DAYS({name})) = {name if column.type.kind == 'date' else f'DATE({name})'}"


def _part(form: Form, column: Column) -> str:
    """Return the SQL expression of a column's part of the row text; NULL for NULL."""
    name = chunks.quoted(form.name)
    zerofill = "zerofill" in column.column_type.lower()
    match form.kind:
        case "number" | "bits" if column.column_type.lower().startswith("bit"):
            return f"CAST({name} AS UNSIGNED)"
        case "number" | "decimal":
            return f"{name} + 0" if zerofill or column.column_type.lower().startswith("year") else name
        case "text":
            plain = column.charset == "utf8mb4" and not column.column_type.lower().startswith(("enum", "set"))
            text = name if plain else f"CONVERT({name} USING utf8mb4)"
            return f"CONCAT(LENGTH({text}), ':', {text})"
        case "bytes" | "geometry" | "floats":
            return f"CONCAT('x', HEX({name}))"
    return name
