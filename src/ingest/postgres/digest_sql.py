"""Build the SQL with which PostgreSQL computes digests of tables, equal to those of `cdc.merkle` over the same rows.

The session must come from `connected`: ISO dates, UTC. `concat` joins a row's text; it prints each value like a SELECT.
The XOR is computed over the 32 hexadecimal characters of a row's hash, as on other servers; `bit_xor` reads them as a
bit string. Values without canonical form (infinity, a year BC, NaN in a decimal) are NULL in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc.merkle.canonical import CoveredColumns, Form
from cdc.merkle.leaves import HASH_BITS, MIDDLE, SHIFT, Grid, bounds
from cdc.model.schema import Column, TableSchema
from ingest.postgres import selects

_BITS = 256  # bits of the 32 characters that are XORed
# seconds from the year 0, from which leaves count, to 1970, from which the server counts
_FIRST_SECOND = 62_167_219_200
_DAYS = ("'0001-01-01'", "'9999-12-31'")
_TIMES = ("'0001-01-01'", "'9999-12-31 23:59:59.999999'")


@dataclass(frozen=True, slots=True, kw_only=True)
class PgDigestSql:
    """Builds the SQL statements for the digests of one table. `schema` has the server's current column types.

    `cast`: the grid's column cannot be compared with negative numbers (an oid), so it is cast to bigint. If a table is
    not `partitioned`, rows of tables that inherit from it are excluded.
    """

    schema: TableSchema
    covered: CoveredColumns
    grid: Grid
    cast: bool = False
    partitioned: bool = False

    def text(self) -> str:
        """Return the SQL expression of a row's canonical text."""
        return self._joined(self.covered.forms)

    def leaf(self) -> str:
        """Return the SQL expression of a row's leaf number, a bigint; NULL if the key has no canonical form."""
        column = selects.quoted(self.grid.column)
        match self.grid.kind:
            case "integer":
                return f"(({column}::bigint >> {SHIFT}) + {MIDDLE >> SHIFT})"
            case "unsigned":
                return f"({column}::bigint >> {SHIFT})"
            case "day":
                return f"CASE WHEN {_within(column, _DAYS)} THEN ({column} - date '0001-01-01' + 366)::bigint END"
            case "second":
                seconds = f"floor(extract(epoch FROM {column}))::bigint + {_FIRST_SECOND}"
                return f"CASE WHEN {_within(column, _TIMES)} THEN ({seconds}) >> {SHIFT} END"
        forms = {form.name: form for form in self.covered.forms}
        key = self._joined([forms[name] for name in self.covered.key])
        return f"('x' || left({_hash(key)}, {HASH_BITS // 4}))::bit({HASH_BITS})::int::bigint"

    def of_leaves(self, first: int, last: int) -> str:
        """Return the query for the digest of each leaf from `first` to `last` that has rows: leaf, row count, XOR as a
        bit string."""
        return (
            f"SELECT leaf, count(*), bit_xor(hash) FROM (SELECT {self.leaf()} AS leaf, {self._hash_bits()} AS hash "
            f"FROM {self._name()}{self.where(first, last)}) rows GROUP BY leaf"
        )

    def of_range(self, first: int, last: int) -> str:
        """Return the query for one digest of all rows in the leaves `first` to `last`: row count, XOR as a bit
        string."""
        return f"SELECT count(*), bit_xor({self._hash_bits()}) FROM {self._name()}{self.where(first, last)}"

    def rows(self, first: int, last: int, among: Sequence[int] = ()) -> str:
        """Return the query for the rows of the leaves `first` to `last`, in the form of a snapshot.

        If `among` is not empty, only these leaves are read.
        """
        condition = self.where(first, last).removeprefix(" WHERE ")
        if among:
            condition = f"{self.leaf()} IN ({', '.join(map(str, among))})"
        return selects.select_all(self.schema, self._name(), condition)

    def where(self, first: int, last: int) -> str:
        """Return the condition for rows in the leaves `first` to `last`; empty if these are all leaves."""
        edges = bounds(self.grid, first, last)
        if edges is None:
            if (first, last) == (0, self.grid.last):
                return ""
            return f" WHERE {self.leaf()} BETWEEN {first} AND {last}"
        column = selects.quoted(self.grid.column) + ("::bigint" if self.cast else "")
        parts = [f"{column} {sign} {edge}" for sign, edge in zip((">=", "<"), edges, strict=True) if edge]
        if self.grid.kind in ("day", "second"):
            # infinity and years without canonical form belong to no leaf
            parts.append(_within(column, _DAYS if self.grid.kind == "day" else _TIMES))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _joined(self, forms: Sequence[Form]) -> str:
        parts = []
        for form in forms:
            column = self.schema.column(form.name)
            assert column is not None, "what is covered is a column"
            parts.append(_part(form, column))
        return f"concat_ws(',', {', '.join(parts)})"

    def _hash_bits(self) -> str:
        return f"('x' || encode(left({_hash(self.text())}, {_BITS // 8})::bytea, 'hex'))::bit({_BITS})"

    def _name(self) -> str:
        return selects.rows_of(self.schema.table_id, partitioned=self.partitioned)


def _hash(text: str) -> str:
    """Return the SQL expression of a text's SHA-256 in hexadecimal."""
    return f"encode(sha256(convert_to({text}, 'UTF8')), 'hex')"


def _reversed(number: str) -> str:
    """Return the SQL expression of a double's bytes in little-endian hexadecimal."""
    return " || ".join(f"upper(substr(encode(float8send({number}), 'hex'), {at}, 2))" for at in range(15, 0, -2))


def _within(column: str, edges: tuple[str, str]) -> str:
    return f"{column} BETWEEN {edges[0]} AND {edges[1]}"


def _part(form: Form, column: Column) -> str:
    """Return the SQL expression of a column's part of the row text; empty for NULL."""
    name = selects.quoted(form.name)
    there = f"{name} IS DISTINCT FROM NULL"  # a composite value whose fields are all NULL IS NULL, too
    match form.kind:
        case "number" | "bits" if column.column_type.lower().startswith("bit"):
            # a boolean and one bit are both bit(1) here
            part = f"CASE WHEN {name}::text IN ('true', '1') THEN 1 ELSE 0 END"
        case "number":
            part = name
        case "decimal":
            there = f"{name} <> 'NaN'"
            part = name
        case "day":
            there, part = _within(name, _DAYS), name
        case "moment":
            there, part = _within(name, _TIMES), f"to_char({name}, 'YYYY-MM-DD HH24:MI:SS.US')"
        case "clock":
            part = f"to_char({name}::interval, 'HH24:MI:SS.US')"
        case "bytes":
            part = f"concat('x', upper(encode({name}, 'hex')))"
        case "geometry":  # a point's, in MySQL's binary form
            there = " AND ".join(f"abs({name}[{at}]) < 'Infinity'" for at in (0, 1))
            part = f"concat('x000000000101000000', {_reversed(f'{name}[0]')}, {_reversed(f'{name}[1]')})"
        case _:
            # concat prints a value as SELECT does, CHAR(n) with its blanks
            part = f"concat(octet_length(convert_to(concat({name}), 'UTF8')), ':', {name})"
    return f"CASE WHEN {there} THEN {part}::text ELSE '' END"
