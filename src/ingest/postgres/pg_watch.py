"""Check the catalog regularly for changes of tables that the log does not contain.

Each check compares the captured tables with the previous check, which is stored in the checkpoint. A table that must be
re-read is reported only when the log has been read up to the time of the check, so that earlier changes come first. For
all other findings the session restarts: a table that is not published or no longer exists, or whose publication would
harm the application.

The queries of one check read the same state of the catalog. Otherwise an ALTER between two of them would be in one
check by half and in the next one by the other half, and neither half alone shows that the rows were rewritten.

A check first asks the server for digests of all that it would read, one per group of tables. Only tables of groups
whose digest has changed since the last check are read. So the cost of an ALTER in this process hardly depends on the
number of tables, and that of a check without changes not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from cdc.model.errors import Retriable
from cdc.model.schema import TableId
from cdc.persistent import PersistentMap, changed_keys, persistent
from cdc.topology.topology import Source
from ingest.ddl.catalog import Catalog, TableName
from ingest.events.tables import Tables
from ingest.postgres import pg_publication, pg_schema
from ingest.postgres.harmless import STORED_FROM, Member, refusal_of
from ingest.postgres.messages import lsn_of
from ingest.postgres.pg_connection import PgConnection, PgError, translated
from ingest.postgres.pg_slot import Names
from ingest.postgres.selects import in_schemas, literal
from ingest.postgres.watched import ColumnLook, TableLook, changed, with_dropped

OFTEN = 1.0  # minimum seconds between checks
_SHARE = 20  # checks may take at most 1/20 of the time
_OWN_TYPES = 16_384  # types from this OID on are user-defined
_TABLES = """SELECT n.nspname, c.relname, c.oid, c.relkind, c.relfilenode, coalesce(r.oid, s.oid, 0),
EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate),
c.xmin FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication_rel r ON r.prrelid = c.oid AND r.prpubid = {number}
LEFT JOIN pg_publication_namespace s ON s.pnnspid = n.oid AND s.pnpubid = {number}
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
AND ({schemas} OR r.oid IS NOT NULL)"""
_COLUMNS = """SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.xmin,
(a.atthasdef OR a.attidentity <> '' OR a.atttypid >= 16384) AND NOT a.atthasmissing FROM pg_attribute a
WHERE a.attrelid IN ({}) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated IN ('', {})
ORDER BY a.attrelid, a.attnum"""
_TYPES = f"SELECT oid, typtype, typelem, typbasetype, typrelid FROM pg_type WHERE oid >= {_OWN_TYPES}"
_PARTS = """SELECT a.attrelid, a.attnum, a.atttypid FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_type t ON t.oid = c.reltype WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid IN ({})
ORDER BY a.attrelid, a.attnum"""
_LABELS = "SELECT enumtypid, oid, enumlabel, xmin FROM pg_enum"
# Finds a row that was written before its partition (or an ancestor of it) was attached, or in the same transaction.
# Such row was not written through the table. A very old transaction id may look like a future one.
_CAME_FULL = """SELECT 1 FROM ONLY {} x CROSS JOIN
(SELECT min(age(xmin)) AS attached FROM pg_inherits
WHERE inhrelid IN (SELECT relid FROM pg_partition_ancestors({}))) i
WHERE age(x.xmin) >= i.attached OR age(x.xmin) < 0 LIMIT 1"""
_GROUPS = 64  # tables are in groups by their OIDs
_HASHES = """SELECT {} AS kind, {} AS tables, hashtextextended(x::text COLLATE "C", 0) AS hash FROM ({}) x"""
_DIGESTS = "SELECT kind, tables, count(*), sum(hash) FROM ({}) h GROUP BY kind, tables ORDER BY kind, tables"
_NUDGE = "SELECT pg_logical_emit_message(true, 'tailorbird', '')"


Members = Mapping[int, Sequence[Member]]  # by the OID of their table


class _Found(NamedTuple):
    """A table to re-read, for a reason, once the log has been read up to `lsn`. `seen` is its state at the check."""

    table: TableName
    why: str
    lsn: int
    seen: dict[str, Any] | None


class _Check(NamedTuple):
    """A check that found nothing that needs a new session.

    `shared` are the digests of what concerns all tables, `groups` those of each group. `names` are the tables by group;
    `catalog` are the tables as capture knew them.
    """

    shared: object
    groups: Mapping[int, object]
    publication: pg_publication.Publication
    names: dict[int, set[TableName]]
    catalog: Catalog


class PgWatch:
    """Watches the captured tables of one source. `state` is the result of the last check, for the checkpoint."""

    def __init__(
        self,
        connection: PgConnection,
        source: Source,
        names: Names,
        tables: Tables,
        state: Mapping[str, Any],
        left_out: Callable[[TableName], bool],
    ) -> None:
        self._connection, self._source, self._names, self._tables = connection, source, names, tables
        self._known: PersistentMap[str, dict[str, Any]] = persistent(state)
        self._left_out = left_out
        self._found: dict[TableName, _Found] = {}
        self._next = 0.0
        self._last: _Check | None = None
        self._refused: dict[TableName, object] = {}  # last state of each table that is left out

    @property
    def state(self) -> Mapping[str, Any]:
        """Return the last check's state of each table, without changes that were not reported yet."""
        return self._known

    def look(self) -> None:
        """Check the catalog if the last check is long enough ago. Raises Retriable if the session must restart."""
        began = time.monotonic()
        if began < self._next:
            return
        with translated(self._source, "look at the tables"):
            self._look()
        took = time.monotonic() - began
        self._next = began + max(OFTEN, _SHARE * took)

    def due(self, place: int) -> list[tuple[TableId, int, str]]:
        """Return (table, OID, reason) of tables to re-read that were found by checks before a log position.

        Raises Retriable for a change that needs a new session."""
        if not self._found:
            return []
        ready = [one for one in self._found.values() if one.lsn <= place]
        found = []
        for one in ready:
            del self._found[one.table]
            known = self._tables.catalog.tables.get(one.table)
            if one.seen is None or known is None or known.identity != str(one.seen["t"][0]):
                name = f"source {self._source.name}: table {'.'.join(one.table)}"
                raise Retriable(f"{name}: {one.why}; the session restarts", retry_after=0.1)
            self._known = self._known.put(".".join(one.table), one.seen)
            table = TableId(source=self._source.name, database=one.table[0], table=one.table[1])
            found.append((table, int(one.seen["t"][0]), one.why))
        return found

    def _look(self) -> None:
        connection, source, catalog = self._connection, self._source, self._tables.catalog
        last = self._last
        with connection.one_moment():
            shared, groups = self._digests()
            if last is None or last.shared != shared or _other_tables(last.catalog, catalog):
                some, last = None, None
                publication = pg_publication.publication_of(connection, source, self._names)
            else:
                some = {at for at in {*last.groups, *groups} if last.groups.get(at) != groups.get(at)}
                publication = last.publication
            if last is not None and not some:
                self._last = last._replace(catalog=catalog)
                return
            rows = connection.texts(self._query(publication.number, some))
            members = pg_schema.members_of(connection, source, ", ".join(row[2] for row in rows)) if rows else []
            wanted = [row for row in rows if self._captured((row[0], row[1]))]
            own = pg_schema.grouped(members)
            seen = self._seen(wanted, own)
        self._last = None  # the check is complete only if it raises no error
        self._protect(rows, own, publication)
        for row in rows:
            self._ask_again(row, own, publication.entries.get((row[0], row[1])))
        for row in wanted:
            if not publication.has((row[0], row[1])):
                raise Retriable(
                    f"source {source.name}: table {row[0]}.{row[1]} is not published yet; the session restarts",
                    retry_after=0.1,
                )
        ((lsn,),) = connection.texts("SELECT pg_current_wal_insert_lsn()")
        before = len(self._found)
        names = dict[int, set[TableName]]() if last is None else last.names
        former = None if last is None else [name for at in some or () for name in names.pop(at, ())]
        self._compare(seen, lsn_of(lsn), former)
        if len(self._found) > before:
            connection.query(_NUDGE)  # write a message, so that the log gets beyond the check even without other writes
        for name, one in seen.items():
            names.setdefault(one.oid % _GROUPS, set()).add(name)
        self._last = _Check(shared, groups, publication, names, catalog)

    def _query(self, publication: int | str, groups: Collection[int] | None) -> str:
        """Return the query of the tables in some groups (None: all); `publication` is an OID in SQL."""
        query = _TABLES.format(number=publication, schemas=in_schemas(self._source))
        return query if groups is None else f"{query} AND {_group('c.oid')} IN ({', '.join(map(str, sorted(groups)))})"

    def _digests(self) -> tuple[object, dict[int, object]]:
        """Return a digest of what concerns all tables, and one of each group of tables. They differ from those of
        another check if the result of one of its queries does.

        A query's result is represented by the number of its rows and the sum of their hashes of 64 bits.
        """
        connection, name = self._connection, literal(self._names.publication)
        number = f"SELECT oid FROM pg_publication WHERE pubname = {name}"
        tables = self._query(f"coalesce(({number}), 0)", None)
        oids = f"SELECT t.oid FROM ({tables}) t"
        parts = _PARTS.format(f"SELECT typrelid FROM ({_TYPES}) t WHERE typtype = 'c'")
        queries = [
            *(
                ("-1", one)
                for one in (*pg_publication.queries(name, number, connection.version), _TYPES, parts, _LABELS)
            ),
            (_group("x.oid"), tables),
            (_group("x.root"), pg_schema.members_query(oids)),
            (_group("x.attrelid"), _COLUMNS.format(oids, _stored(connection))),
        ]
        hashes = (_HASHES.format(kind, at, query) for kind, (at, query) in enumerate(queries))
        found: dict[int, list[object]] = {}
        for kind, at, *digest in connection.texts(_DIGESTS.format(" UNION ALL ".join(hashes))):
            found.setdefault(int(at), []).append((kind, digest))
        shared: object = found.pop(-1, None)
        return shared, dict[int, object](found)

    def _captured(self, name: TableName) -> bool:
        return self._tables.captured(*name) and not self._left_out(name)

    def _ask_again(self, row: tuple[str, ...], members: Members, entry: bool | None) -> None:
        """Raise Retriable if a table that is left out was altered, because a new session may be able to capture it."""
        name = (row[0], row[1])
        if not self._left_out(name):
            return
        looks = (row, entry, members.get(int(row[2]), []))
        if self._refused.setdefault(name, looks) != looks:
            raise Retriable(
                f"source {self._source.name}: table {row[0]}.{row[1]}, which is left out, was altered; the session "
                "restarts",
                retry_after=0.1,
            )

    def _compare(self, seen: Mapping[TableName, TableLook], lsn: int, former: Collection[TableName] | None) -> None:
        """Compare tables with the last check, which found `former` in their groups. None: compare all tables."""
        catalog, news = self._tables.catalog.tables, dict[str, dict[str, Any]]()
        for name, now in seen.items():
            if name not in catalog:  # the table was dropped and created again
                raise Retriable(
                    f"source {self._source.name}: table {'.'.join(name)} exists now; the session restarts",
                    retry_after=0.1,
                )
            known, state = self._known.get(".".join(name)), now.state()
            if known is None:
                news[".".join(name)] = state
                continue
            full, waiting = with_dropped(known, state), self._found.get(name)
            if full == known and waiting is None:
                continue
            if waiting is not None:
                if waiting.seen != state:
                    self._found[name] = _Found(name, waiting.why, lsn, state)
            elif why := changed(known, now, self._came_full, catalog[name].former):
                self._found[name] = _Found(name, why, lsn, state)
            else:
                news[".".join(name)] = full
        if news:
            self._known = self._known.updated(news)
        if former is None:
            there = {".".join(name) for name in (*seen, *catalog)}
            ended = [one for one in self._known if one not in there]
        else:
            ended = [".".join(name) for name in former if name not in seen and name not in catalog]
        for one in ended:
            self._known = self._known.without(one)
        for name in catalog if former is None else former:
            if name in catalog and name not in seen and self._captured(name) and name not in self._found:
                self._found[name] = _Found(name, "it was dropped", lsn, None)

    def _protect(self, rows: list[tuple[str, ...]], members: Members, publication: pg_publication.Publication) -> None:
        """Remove tables from the publication if it makes statements of the application fail."""
        version, harmed = self._connection.version, []
        for schema, name, oid, kind, _, _, keyed, _ in rows:
            if (schema, name) not in publication.entries:
                continue
            own = members.get(int(oid), ())
            stored = publication.stored and version >= STORED_FROM
            why = refusal_of(
                f"{schema}.{name}", own, partitioned=kind == "p", keyed=keyed == "t", version=version, stored=stored
            )
            if why is not None:
                harmed.append((schema, name))
        if harmed and pg_publication.withdraw(self._connection, self._source, self._names, publication, harmed):
            listed = ", ".join(".".join(name) for name in harmed)
            raise Retriable(
                f"source {self._source.name}: {listed} lost the replica identity and is no longer published; the "
                "session restarts",
                retry_after=0.1,
            )

    def _seen(self, rows: list[tuple[str, ...]], members: Members) -> dict[TableName, TableLook]:
        if not rows:
            return {}
        columns: dict[str, dict[int, ColumnLook]] = {}
        kinds = {row[2]: row[3] for row in rows}
        for oid, number, name, kind, row, filled in self._connection.texts(
            _COLUMNS.format(", ".join(kinds), _stored(self._connection))
        ):
            column = ColumnLook(name=name, type=int(kind), row=int(row), filled=filled == "t")
            columns.setdefault(oid, {})[int(number)] = column
        own = {one.type for found in columns.values() for one in found.values() if one.type >= _OWN_TYPES}
        types = _Types(self._connection) if own else None
        found: dict[TableName, TableLook] = {}
        for schema, table, oid, kind, file, published, _, _ in rows:
            own_columns = columns.get(oid, {}).values()
            hidden = self._hides(schema, table)
            shape, labels = ("", {}) if types is None else types.of(
                {one.type for one in own_columns if not hidden(one.name)},
                {one.type for one in own_columns if hidden(one.name)},
            )  # fmt: skip
            found[schema, table] = TableLook(
                oid=int(oid),
                published=int(published),
                file=int(file),
                columns=columns.get(oid, {}),
                members={one.oid: one.file for one in members.get(int(oid), ())} if kind == "p" else {},
                shape=shape,
                labels=labels,
            )
        return found

    def _hides(self, schema: str, table: str) -> Callable[[str], bool]:
        """Return the function that says whether the policy of the host hides a column of a table."""
        if self._source.permitted is None:
            return lambda column: False
        rule = self._source.rule_of(TableId(source=self._source.name, database=schema, table=table))
        return lambda column: rule is not None and rule.hides(column)

    def _came_full(self, oid: int) -> bool:
        """Return whether a partition had rows when it was attached; True if finding that out takes too long."""
        try:
            rows = self._connection.texts(f"SELECT {oid}::regclass")
            self._connection.query("SET statement_timeout = 5000")
            return bool(self._connection.texts(_CAME_FULL.format(rows[0][0], oid)))
        except PgError:  # the partition is large, dropped or not readable; a re-read of the table is always correct
            return True
        finally:
            self._connection.query("SET statement_timeout = 0")


def _group(oid: str) -> str:
    """Return the group of a table, in SQL; `oid` is an expression."""
    return f"{oid}::bigint % {_GROUPS}"


def _other_tables(before: Catalog, after: Catalog) -> bool:
    """Return whether only one of two catalogs has a table."""
    changed_names = changed_keys(before.tables, after.tables)
    return any((name in before.tables) != (name in after.tables) for name in changed_names)


def _stored(connection: PgConnection) -> str:
    """Return the kind of generated columns that a publication can contain, as an SQL literal."""
    return "'s'" if connection.version >= STORED_FROM else "''"


class _Types:
    """User-defined types of a database: fields of composite types, labels of enums."""

    def __init__(self, connection: PgConnection) -> None:
        self._types = {int(row[0]): row for row in connection.texts(_TYPES)}
        relations = {row[4] for row in self._types.values() if row[1] == "c"}
        self._parts: dict[str, list[tuple[str, ...]]] = {}
        for row in connection.texts(_PARTS.format(", ".join(relations))) if relations else ():
            self._parts.setdefault(row[0], []).append(row)
        # by type and label: the label, and the transaction that wrote it
        self._labels: dict[int, dict[int, tuple[str, str]]] = {}
        for kind, number, label, written in connection.texts(_LABELS):
            self._labels.setdefault(int(kind), {})[int(number)] = label, written

    def of(self, types: set[int], hidden: set[int]) -> tuple[str, dict[int, str]]:
        """Return a text that describes the composite types among these (and all that they contain), and the enums'
        labels.

        `hidden` are types of columns whose values must not leave the host. In place of an enum's label, which is one of
        these values, the result has the transaction that wrote it.
        """
        shape, labels = self._within(types | hidden)
        _, shown = self._within(types)
        return shape, {number: label if number in shown else row for number, (label, row) in labels.items()}

    def _within(self, types: set[int]) -> tuple[str, dict[int, tuple[str, str]]]:
        shape, labels, done, waiting = [], dict[int, tuple[str, str]](), set[int](), sorted(types)
        while waiting:
            oid = waiting.pop()
            found = self._types.get(oid)
            if found is None or oid in done:
                continue
            done.add(oid)
            _, _, element, base, relation = found
            labels.update(self._labels.get(oid, {}))
            waiting += [int(element), int(base)]
            if relation != "0" and found[1] == "c":
                parts = self._parts.get(relation, [])
                shape.append(f"{oid}: " + ", ".join(f"{number} {kind}" for _, number, kind in parts))
                waiting += [int(kind) for _, _, kind in parts]
        return "\n".join(sorted(shape)), labels
