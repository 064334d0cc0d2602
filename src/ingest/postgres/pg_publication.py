"""Maintain the publication of a source: it contains every captured table, except those whose application it would
harm."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cdc.model.errors import TableChanged, UsageError
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.ddl.catalog import TableName
from ingest.postgres import pg_schema
from ingest.postgres.harmless import STORED_FROM, Refusal
from ingest.postgres.pg_connection import PgConnection, PgError, grants, translated
from ingest.postgres.pg_slot import Names
from ingest.postgres.relations import TableShown
from ingest.postgres.selects import literal, quoted

_PUBLICATION = """SELECT oid, pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot, puballtables,
{} = 's', pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = {}"""
_ENTRIES = """SELECT n.nspname, c.relname, r.oid, r.prqual IS NOT NULL, r.prattrs IS NOT NULL FROM pg_publication_rel r
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE r.prpubid = {}"""
_SCHEMAS = """SELECT n.nspname FROM pg_publication_namespace s JOIN pg_namespace n ON n.oid = s.pnnspid
WHERE s.pnpubid = {}"""

# SQLSTATEs if a table was dropped, or made unlogged or temporary, since the catalog was read
_ALTERED = ("42P01", "42809", "22023")
_HIDDEN = """SELECT oid FROM pg_class WHERE relkind IN ('r', 'p') AND NOT has_any_column_privilege(oid, 'SELECT')"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A publication as the server's catalog describes it. `number` is its OID, 0 if it does not exist.

    `every`: it publishes all four kinds of changes. `via_root`: partitions are published as their root table. `stored`:
    it includes stored generated columns. `owned`: the source's user may change it. `entries` maps its tables to whether
    a row filter or a column list restricts them.
    """

    number: int = 0
    every: bool = True
    via_root: bool = True
    all_tables: bool = False
    stored: bool = True
    owned: bool = True
    entries: Mapping[TableName, bool]
    schemas: frozenset[str] = frozenset()

    def has(self, table: TableName) -> bool:
        """Return whether the publication contains a table."""
        return self.all_tables or table in self.entries or table[0] in self.schemas

    def refuses(self, table: TableName) -> Refusal | None:
        """Return why a table cannot be captured by this publication; None if it can."""
        if not self.entries.get(table):
            return None
        name = f"{quoted(table[0])}.{quoted(table[1])}"
        return Refusal(
            f"the publication has table {table[0]}.{table[1]} with a row filter or a column list: rows or columns "
            "would be missing",
            f"ALTER PUBLICATION … DROP TABLE {name}, then ADD TABLE {name}; or another publication_name",
        )


def publication_of(connection: PgConnection, source: Source, names: Names) -> Publication:
    """Return the current publication of a source."""
    name = literal(names.publication)
    with translated(source, "look at the publication"):
        rows = connection.texts(queries(name, "", connection.version)[0])
        if not rows:
            return Publication(entries={})
        number = rows[0][0]
        _, of_tables, of_schemas = queries(name, number, connection.version)
        entries, schemas = connection.texts(of_tables), connection.texts(of_schemas)
    return Publication(
        number=int(number),
        every=rows[0][1] == "t",
        via_root=rows[0][2] == "t",
        all_tables=rows[0][3] == "t",
        stored=rows[0][4] == "t",
        owned=rows[0][5] == "t",
        entries={(row[0], row[1]): "t" in row[3:] for row in entries},
        schemas=frozenset(name for (name,) in schemas),
    )


def queries(name: str, number: str, version: int) -> tuple[str, str, str]:
    """Return the queries of a publication, its tables and its schemas. `name` and `number` are its name and OID in
    SQL."""
    stored = "pubgencols" if version >= STORED_FROM else "'n'"
    return _PUBLICATION.format(stored, name), _ENTRIES.format(f"({number})"), _SCHEMAS.format(f"({number})")


def statements(
    names: Names, found: Publication, wanted: Mapping[TableName, TableShown], version: int, *, own: bool
) -> list[str]:
    """Return the statements that add the wanted tables to a publication; empty if it contains them.

    A publication that the topology names (not `own`) is changed no further than the captured tables need. Tables are
    added with ONLY, because their children have replica identities of their own.
    """
    missing = [name for name in sorted(wanted) if not found.has(name)]
    listed = ", ".join(f"ONLY {quoted(schema)}.{quoted(table)}" for schema, table in missing)
    generated = version >= STORED_FROM and any(one.generated for one in wanted.values())
    name = quoted(names.publication)
    if not found.number:
        options = "publish_via_partition_root = true"
        if version >= STORED_FROM:
            options += ", publish_generated_columns = stored"
        return [f"CREATE PUBLICATION {name}{f' FOR TABLE {listed}' if missing else ''} WITH ({options})"]
    options_lacking = []
    if not found.every:
        options_lacking.append("publish = 'insert, update, delete, truncate'")
    if not found.via_root and (own or any(one.partitioned for one in wanted.values())):
        options_lacking.append("publish_via_partition_root = true")
    if generated and not found.stored:
        options_lacking.append("publish_generated_columns = stored")
    # First of all, because a table with REPLICA IDENTITY FULL must never be published without its generated columns.
    done = [f"ALTER PUBLICATION {name} SET ({', '.join(options_lacking)})"] if options_lacking else []
    if missing:
        done.append(f"ALTER PUBLICATION {name} ADD TABLE {listed}")
    return done


def refusals(
    connection: PgConnection, source: Source, wanted: Mapping[TableName, TableShown], publication: Publication
) -> dict[TableName, Refusal]:
    """Return which of the wanted tables are left out, and why."""
    with translated(source, "ask for the rights to read"):
        hidden = {int(oid) for (oid,) in connection.texts(_HIDDEN)}
    found: dict[TableName, Refusal] = {}
    for name, one in wanted.items():
        table = TableId(source=source.name, database=name[0], table=name[1])
        stored = publication.stored or publication.owned
        why = pg_schema.refused(source, table, one, connection.version, stored=stored) or publication.refuses(name)
        if why is None and one.oid in hidden and table not in source.tables:
            why = Refusal(f"table {table}: permission denied to read it", "; ".join(grants(source)))
        if why is not None:
            found[name] = why
    return found


def have_publication(
    connection: PgConnection,
    source: Source,
    names: Names,
    found: Publication,
    wanted: Mapping[TableName, TableShown],
    unwanted: Collection[TableName] = (),
) -> None:
    """Publish the wanted tables; remove the unwanted ones if Tailorbird created the publication.

    Raises UsageError, with the statements, if the source's user may not execute them.
    """
    withdraw(connection, source, names, found, unwanted)
    todo = statements(names, found, wanted, connection.version, own=not source.publication_name)
    for statement in todo:
        try:
            connection.query(statement)
        except PgError as error:
            if error.state in _ALTERED:
                raise TableChanged(f"source {source.name}: publish its tables: {error.message}") from error
            if error.state not in ("42501", "42704"):
                with translated(source, "publish its tables"):
                    raise
            remedy = f"as the owner of the tables: {'; '.join(todo)}"
            raise UsageError(f"source {source.name}: {error.message}", remedy) from error


def withdraw(
    connection: PgConnection, source: Source, names: Names, found: Publication, unwanted: Collection[TableName]
) -> list[TableName]:
    """Remove tables from Tailorbird's own publication, so that statements of the application work again.

    Returns the tables that were removed. Empty if the topology names the publication, or the source's user
    may not change it.
    """
    named = [] if source.publication_name or not found.owned else sorted(set(unwanted) & set(found.entries))
    for schema, table in named:
        with translated(source, f"withdraw {schema}.{table} from the publication"):
            try:
                connection.query(
                    f"ALTER PUBLICATION {quoted(names.publication)} DROP TABLE ONLY {quoted(schema)}.{quoted(table)}"
                )
            except PgError as error:
                if error.state not in ("42P01", "42704"):  # the table was dropped concurrently
                    raise
    return named
