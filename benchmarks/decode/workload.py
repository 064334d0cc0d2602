"""Define the two shapes of binlogs as SQL: `bulk` (transactions of many rows) and `oltp` (one row each).

Every value is a function of the row's number, so two machines decode the same rows. The values cover difficult cases:
unsigned above 2³¹, negative numbers, four-byte characters, fractions, NULLs in three columns, nested JSON. Doubles
inside JSON are never whole, because some peers print 1.0 as 1.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

ShapeName = Literal["bulk", "oltp"]
SHAPES: Final[tuple[ShapeName, ...]] = ("bulk", "oltp")

DATABASE: Final = "bench"

# Column name → its declaration and the SQL of its value in row `n`, in table order.
_COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "id": ("INT UNSIGNED NOT NULL PRIMARY KEY", "3000000000 + n"),
    "qty": ("INT NOT NULL", "CAST(CRC32(n) AS SIGNED) - 2147483648"),
    "price": ("DECIMAL(12,2) NOT NULL", "(CRC32(n + 1) % 100000000) / 100 - 500000"),
    "ratio": ("DOUBLE", "IF(n % 11 = 0, NULL, (CRC32(n + 2) % 1000003) / 997e0)"),
    "name": (
        "VARCHAR(100) NOT NULL",
        "CONCAT(ELT(1 + n % 5, 'Müller', 'Дом книги', '東京', 'Ørsted 🐦', 'plain'), ' ', MD5(n))",
    ),
    "note": ("TEXT", "IF(n % 8 = 0, NULL, REPEAT(CONCAT(SHA1(n), ' '), 1 + n % 4))"),
    "made": (
        "DATETIME(6) NOT NULL",
        "TIMESTAMPADD(MICROSECOND, CRC32(n + 3) * 30011, CAST('2020-01-01' AS DATETIME(6)))",
    ),
    "touched": ("TIMESTAMP NOT NULL", "FROM_UNIXTIME(1600000000 + CRC32(n + 4) % 100000000)"),
    "due": ("DATE", "IF(n % 16 = 0, NULL, DATE_ADD('2015-01-01', INTERVAL CRC32(n + 5) % 6000 DAY))"),
    "attrs": (
        "JSON NOT NULL",
        "JSON_OBJECT('sku', CONCAT('A-', n), 'tags', JSON_ARRAY('red', 'größe'), 'weight',"
        " n % 1000 + 0.25e0, 'stock', CAST(n % 70000 AS SIGNED) - 100, 'active', n % 2 = 0,"
        " 'size', JSON_OBJECT('w', n % 50, 'h', n % 300))",
    ),
    "kind": ("ENUM('new','paid','packed','shipped','returned') NOT NULL", "1 + n % 5"),
    "token": ("VARBINARY(32) NOT NULL", "UNHEX(MD5(n + 6))"),
}
COLUMNS: Final = tuple(_COLUMNS)

_CHANGE: Final = (
    "qty = -1 - qty, price = price + 1.25, touched = touched + INTERVAL 1 SECOND, kind = 1 + kind % 5,"
    " attrs = JSON_SET(attrs, '$.stock', CAST(JSON_EXTRACT(attrs, '$.stock') AS SIGNED) + 1)"
)

# One block of changes: numbers of inserts, of updates (of the first inserted rows) and of deletes (of the rest).
_BULK_BLOCK: Final = (1000, 600, 400)
_OLTP_BLOCK: Final = (10, 7, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One binlog: `statements` fill `table` on an empty database; a decoder must find `changes` changes."""

    name: ShapeName
    preparation: tuple[str, ...]
    statements: tuple[str, ...]
    changes: int

    @property
    def table(self) -> str:
        """The only table whose rows are in this binlog."""
        return self.name


def shape(name: ShapeName, changes: int) -> Shape:
    """Return the shape with at least this many changes, in whole blocks (of 2000 changes for bulk, 20 for oltp)."""
    block = _BULK_BLOCK if name == "bulk" else _OLTP_BLOCK
    blocks = -(-changes // sum(block))
    make = _bulk if name == "bulk" else _oltp
    preparation, statements = make(blocks)
    return Shape(name=name, preparation=preparation, statements=statements, changes=blocks * sum(block))


def fingerprint(shapes: tuple[Shape, ...]) -> str:
    """Return a hash of the shapes' SQL, so that a cached binlog is never used for other SQL."""
    return hashlib.sha256(repr(shapes).encode()).hexdigest()[:12]


def _table(name: ShapeName) -> str:
    declared = ", ".join(f"{column} {kind}" for column, (kind, _) in _COLUMNS.items())
    return f"CREATE TABLE {DATABASE}.{name} ({declared}) CHARACTER SET utf8mb4"


def _insert(name: ShapeName, rows: str) -> str:
    values = ", ".join(value for _, value in _COLUMNS.values())
    return f"INSERT INTO {DATABASE}.{name} SELECT {values} FROM {rows}"


def _bulk(blocks: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inserted, updated, _ = _BULK_BLOCK
    digits = "SELECT 0 AS d" + "".join(f" UNION ALL SELECT {digit}" for digit in range(1, 10))
    preparation = (
        _table("bulk"),
        f"CREATE TABLE {DATABASE}.numbers (i INT PRIMARY KEY)",
        f"INSERT INTO {DATABASE}.numbers SELECT a.d + 10 * b.d + 100 * c.d"
        f" FROM ({digits}) a, ({digits}) b, ({digits}) c",
    )
    statements: list[str] = []
    for block in range(blocks):
        first = block * inserted
        rows = f"(SELECT i + {first} AS n FROM {DATABASE}.numbers WHERE i < {inserted} ORDER BY i) numbered"
        low, middle, high = (3_000_000_000 + first + step for step in (0, updated, inserted))
        statements += (
            _insert("bulk", rows),
            "START TRANSACTION",
            f"UPDATE {DATABASE}.bulk SET {_CHANGE} WHERE id BETWEEN {low} AND {middle - 1}",
            f"DELETE FROM {DATABASE}.bulk WHERE id BETWEEN {middle} AND {high - 1}",
            "COMMIT",
        )
    return preparation, tuple(statements)


def _oltp(blocks: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inserted, updated, _ = _OLTP_BLOCK
    insert = _insert("oltp", f"(SELECT block * {inserted} + step AS n) numbered")
    # Runs in the server, because round trips would take most of the time; every statement commits by itself.
    procedure = (
        f"CREATE PROCEDURE {DATABASE}.change_rows(blocks INT) BEGIN"
        " DECLARE block, step INT DEFAULT 0;"
        " WHILE block < blocks DO"
        f" SET step = 0; WHILE step < {inserted} DO {insert}; SET step = step + 1; END WHILE;"
        f" SET step = 0; WHILE step < {updated} DO"
        f" UPDATE {DATABASE}.oltp SET {_CHANGE} WHERE id = 3000000000 + block * {inserted} + step;"
        " SET step = step + 1; END WHILE;"
        f" WHILE step < {inserted} DO"
        f" DELETE FROM {DATABASE}.oltp WHERE id = 3000000000 + block * {inserted} + step;"
        " SET step = step + 1; END WHILE;"
        " SET block = block + 1; END WHILE; END"
    )
    return (_table("oltp"), procedure), (f"CALL {DATABASE}.change_rows({blocks})",)
