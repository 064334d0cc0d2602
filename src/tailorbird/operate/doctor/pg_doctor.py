"""Query a PostgreSQL server for `doctor`, read-only."""

from __future__ import annotations

from cdc.model.errors import TailorbirdError, UsageError
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.postgres import pg_publication, pg_schema, pg_slot
from ingest.postgres.pg_connection import PgConnection, PgError, connected, grants, translated
from ingest.postgres.relations import TableShown
from ingest.postgres.selects import literal, named
from tailorbird.operate.doctor.doctor import TableInspection, UnreachableServer
from tailorbird.operate.doctor.postgres import PgServerInspection, PgTableInspection

_SETTINGS = ("wal_level", "max_slot_wal_keep_size", "max_replication_slots")
# Columns whose values may be stored out of line, in tables that have such values.
_LARGE = """SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = {} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attstorage IN ('x', 'e')
AND c.reltoastrelid <> 0 AND pg_relation_size(c.reltoastrelid) > 0 ORDER BY a.attnum"""

# Rows that a replication slot, and other transactions of the capture, keep from vacuum.
_HELD = """SELECT (SELECT coalesce(max(age(catalog_xmin)), 0) FROM pg_replication_slots WHERE slot_name = $1),
(SELECT coalesce(max(extract(epoch FROM now() - xact_start)), 0)::bigint FROM pg_stat_activity
WHERE application_name = $2 AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid())"""


def postgres_inspection(topology: str, source: Source) -> PgServerInspection | UnreachableServer:
    """Return the server's answers, or the reason why it cannot be reached or refuses the login."""
    try:
        with connected(source) as connection:
            return _inspect(connection, topology, source)
    except TailorbirdError as error:
        return UnreachableServer(problem=error.message, refused=isinstance(error, UsageError))


def grants_of(source: Source) -> list[str]:
    """Return GRANT statements for the privileges that the source's user needs."""
    return grants(source)


def _inspect(connection: PgConnection, topology: str, source: Source) -> PgServerInspection:
    names = pg_slot.names_of(topology, source)
    with translated(source, "ask the server"):
        which = ", ".join(map(literal, _SETTINGS))
        rows = connection.texts(f"SELECT name, setting FROM pg_settings WHERE name IN ({which})")
        settings = {row[0]: row[1] for row in rows}
        ((standby, replication, slots, may_create),) = connection.texts(
            "SELECT pg_is_in_recovery(), rolreplication OR rolsuper, (SELECT count(*) FROM pg_replication_slots), "
            "has_database_privilege(current_database(), 'CREATE') FROM pg_roles WHERE rolname = current_user"
        )
        ((held, open_s),) = connection.texts(_HELD, names.slot, f"tailorbird {source.name}")
    slot = pg_slot.slot_of(connection, source, names)
    found = pg_schema.tables_of(connection, source)
    publication = pg_publication.publication_of(connection, source, names)
    tables, owned = [], True
    for table in source.tables:
        name = (table.database, table.table)
        one = found.get(name)
        inspection, owns = _table(connection, source, table, one)
        owned &= owns
        stored = publication.stored or publication.owned
        refused = pg_schema.refused(source, table, one, connection.version, stored=stored) if one else None
        tables.append(
            PgTableInspection(
                table=inspection,
                identity=one.identity if one else "d",
                refused=refused or publication.refuses(name),
                published=publication.has(name),
                large=_large(connection, source, one) if one else (),
            )
        )
    listed = {(table.database, table.table) for table in source.tables}
    wanted = {name: one for name, one in found.items() if name in listed}
    publish = pg_publication.statements(names, publication, wanted, connection.version, own=not source.publication_name)
    return PgServerInspection(
        version=connection.version,
        settings=settings,
        standby=standby == "t",
        replication=replication == "t",
        slot="" if slot is None else slot.status or "lost",
        kept=0 if slot is None else slot.kept,
        free_slots=int(settings.get("max_replication_slots", "0")) - int(slots),
        may_publish=owned and (publication.owned if publication.number else may_create == "t"),
        publish=publish,
        tables=tables,
        held=int(held),
        open_s=int(open_s),
    )


def _table(
    connection: PgConnection, source: Source, table: TableId, one: TableShown | None
) -> tuple[TableInspection, bool]:
    """Return the inspected table, and whether the user has the rights of its owner, which a publication requires."""
    name = f"{table.database}.{table.table}"
    if one is None:
        return TableInspection(name=name, readable="it does not exist", engine="", absent=True), True
    refused = None
    try:
        connection.query(f"SELECT FROM {named(table)} LIMIT 0")
    except PgError as error:
        refused = error.message
    with translated(source, "ask for the owners"):
        ((owns,),) = connection.texts(f"SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = {one.oid}")
    schema = one.definition.schema(table, 1)
    inspection = TableInspection(name=name, readable=refused, engine="heap", schema=schema, keys=one.definition.keys)
    return inspection, owns == "t"


def _large(connection: PgConnection, source: Source, one: TableShown) -> tuple[str, ...]:
    with translated(source, "look for large columns"):
        return tuple(name for (name,) in connection.texts(_LARGE.format(one.oid)))
