"""Read the foreign keys of a MySQL server that change child rows, which its log does not contain."""

from __future__ import annotations

from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.events.foreign_keys import ForeignKey, ForeignKeys
from ingest.mysql.mysql_connection import Connection, query, translated
from ingest.mysql.mysql_schema import dialect_of, in_databases

_KEYS = """SELECT k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.COLUMN_NAME,
k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME, r.DELETE_RULE, r.UPDATE_RULE
FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS r
ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME AND r.TABLE_NAME = k.TABLE_NAME
WHERE k.REFERENCED_TABLE_NAME IS NOT NULL AND ({} OR {})
ORDER BY k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.ORDINAL_POSITION"""


def foreign_keys(connection: Connection, source: Source) -> ForeignKeys:
    """Return the foreign keys from or to tables of the captured databases whose action is CASCADE or SET NULL."""
    found: dict[tuple[str, str, str], list[tuple[str, ...]]] = {}
    with translated(source, "read the foreign keys"):
        dialect, _ = dialect_of(connection, source)
        own, arguments = in_databases(source, dialect, "k.TABLE_SCHEMA", "k.TABLE_NAME")
        other, more = in_databases(source, dialect, "k.REFERENCED_TABLE_SCHEMA", "k.REFERENCED_TABLE_NAME")
        for row in query(connection, _KEYS.format(own, other), *arguments, *more):
            child, parent = (dialect.table_name(str(row[at]), str(row[at + 1])) for at in (0, 4))
            found.setdefault((*child, str(row[2])), []).append((str(row[3]), *parent, *map(str, row[6:])))
    return ForeignKeys(
        ForeignKey(
            child=TableId(source=source.name, database=database, table=table),
            columns=tuple(row[0] for row in rows),
            parent=TableId(source=source.name, database=rows[0][1], table=rows[0][2]),
            referenced=tuple(row[3] for row in rows),
            on_delete=rows[0][4],
            on_update=rows[0][5],
        )
        for (database, table, _), rows in found.items()
    )
