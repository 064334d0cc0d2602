"""`tables: shop.*`: unchanged copies of source tables, each in its own HBase table."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.model.escapes import bounded, dotted, escaped
from cdc.model.schema import TableId
from cdc.topology.topology import Source

_LONGEST = 63  # characters of a table's name in a topology


def declared_tables(source: Source) -> tuple[TableId, ...]:
    """Return the tables that the `tables:` of a source declare: the listed ones and the merged ones."""
    return (*source.tables, *(one.table_id for one in source.merged))


def copies_of(pattern: str, sources: Mapping[str, Source]) -> list[tuple[str, TableId]]:
    """Return (name of the copy, source table) for a pattern: `shop.*`, `shop.orders` or `shop.database.table`.

    A copy is called `<source>_<table>` in lower case, with `_` for `.` and `-`; other characters are escaped. Raises
    ValueError for a pattern that matches no captured table.
    """
    name, _, rest = pattern.partition(".")
    if name not in sources or not rest:
        raise ValueError(f"no tables of a source in {pattern!r}")
    source = sources[name]
    found = [
        (_copy_name(table), table)
        for table in declared_tables(source)
        if rest in ("*", f"{table.database}.{table.table}", table.name, f"{dotted(table.database)}.*")
        or (table.database == source.database and rest in (table.table, dotted(table.table)))
    ]
    if not found:
        raise ValueError(f"{pattern!r} is not a captured table")
    return found


def _copy_name(table: TableId) -> str:
    text = escaped(f"{table.source}_{table.table}".lower().replace(".", "_").replace("-", "_"))
    return bounded(text, _LONGEST, of=str(table)).replace("-", "_")


def copy_query(table: TableId) -> str:
    """Return the query of a copy; its row key is the table's primary key. Names are quoted, because MySQL allows nearly
    all characters."""
    names = ".".join("`" + name.replace("`", "``") + "`" for name in (table.source, table.database, table.table))
    return f"SELECT t.* FROM {names} t"
