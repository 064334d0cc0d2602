"""Define the two shapes of changes for PostgreSQL as SQL: `bulk` (transactions of many rows) and `oltp` (one row each).

They have the same columns and parts as those of `benchmarks.decode.workload` for MySQL, in PostgreSQL's syntax.
"""

from __future__ import annotations

from typing import Final, Literal

ShapeName = Literal["bulk", "oltp"]
SHAPES: Final[tuple[ShapeName, ...]] = ("bulk", "oltp")
# Numbers of rows that are inserted, and of these updated and deleted.
BLOCKS: Final = {"bulk": (1000, 600, 400), "oltp": (10, 7, 3)}
_DECLARED: Final = (
    "id BIGINT PRIMARY KEY, qty INT NOT NULL, price NUMERIC(12,2) NOT NULL, ratio FLOAT8, name VARCHAR(100) NOT NULL, "
    "note TEXT, made TIMESTAMP NOT NULL, touched TIMESTAMPTZ NOT NULL, due DATE, attrs JSONB NOT NULL, "
    "kind VARCHAR(10) NOT NULL, token BYTEA NOT NULL"
)
_VALUES: Final = (
    "3000000000 + n, hashint4(n), (hashint4(n + 1) % 100000000) / 100.0, "
    "CASE WHEN n % 11 = 0 THEN NULL ELSE hashint4(n + 2) / 997.0 END, "
    "(ARRAY['Müller', 'Дом книги', '東京', 'Ørsted 🐦', 'plain'])[1 + n % 5] || ' ' || md5(n::text), "
    "CASE WHEN n % 8 = 0 THEN NULL ELSE repeat(md5(n::text) || ' ', 1 + n % 4) END, "
    "timestamp '2020-01-01' + n * interval '30011 microseconds', to_timestamp(1600000000 + n), "
    "CASE WHEN n % 16 = 0 THEN NULL ELSE date '2015-01-01' + n % 6000 END, "
    "jsonb_build_object('sku', 'A-' || n, 'tags', jsonb_build_array('red', 'größe'), 'weight', n % 1000 + 0.25, "
    "'stock', n % 70000 - 100, 'active', n % 2 = 0, 'size', jsonb_build_object('w', n % 50, 'h', n % 300)), "
    "(ARRAY['new', 'paid', 'packed', 'shipped', 'returned'])[1 + n % 5], decode(md5((n + 6)::text), 'hex')"
)
_CHANGE: Final = (
    "qty = -1 - qty, price = price + 1.25, touched = touched + interval '1 second', "
    "attrs = jsonb_set(attrs, '{stock}', to_jsonb((attrs ->> 'stock')::int + 1))"
)


def expected(shape: ShapeName, changes: int) -> dict[str, int]:
    """Return the changes by `op` in a log of at least `changes` changes, in whole blocks."""
    inserted, updated, deleted = BLOCKS[shape]
    blocks = -(-changes // (inserted + updated + deleted))
    return {"c": blocks * inserted, "u": blocks * updated, "d": blocks * deleted}


def preparation(shape: ShapeName) -> str:
    """Return the CREATE TABLE of a shape."""
    return f"CREATE TABLE {shape} ({_DECLARED})"


def load(shape: ShapeName, changes: int) -> str:
    """Return one DO block that makes all changes in separate transactions, to avoid the time of round trips."""
    inserted, updated, _ = BLOCKS[shape]
    blocks = expected(shape, changes)["c"] // inserted
    at = f"3000000000 + block * {inserted}"
    if shape == "bulk":
        rows = f"generate_series(block * {inserted}, block * {inserted} + {inserted - 1}) n"
        body = (
            f"INSERT INTO bulk SELECT {_VALUES} FROM {rows}; COMMIT; "
            f"UPDATE bulk SET {_CHANGE} WHERE id BETWEEN {at} AND {at} + {updated - 1}; "
            f"DELETE FROM bulk WHERE id BETWEEN {at} + {updated} AND {at} + {inserted - 1}; COMMIT;"
        )
    else:
        row = f"(SELECT block * {inserted} + step AS n) one"
        body = (
            f"FOR step IN 0..{inserted - 1} LOOP INSERT INTO oltp SELECT {_VALUES} FROM {row}; COMMIT; END LOOP; "
            f"FOR step IN 0..{updated - 1} LOOP UPDATE oltp SET {_CHANGE} WHERE id = {at} + step; COMMIT; END LOOP; "
            f"FOR step IN {updated}..{inserted - 1} LOOP DELETE FROM oltp WHERE id = {at} + step; COMMIT; END LOOP;"
        )
    return f"DO $$ BEGIN FOR block IN 0..{blocks - 1} LOOP {body} END LOOP; END $$"
