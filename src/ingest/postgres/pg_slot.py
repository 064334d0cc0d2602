"""Create the replication slot of a source if it does not exist, and check it before the log is read.

The slot retains the server's log from its confirmed position on. If that is later than the committed position,
START_REPLICATION would silently skip the gap. So this is checked first, and raises PositionLost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

from cdc.model.errors import Retriable, UsageError
from cdc.model.event import Position
from cdc.topology.topology import Source
from ingest.postgres.messages import lsn_of, lsn_text
from ingest.postgres.pg_connection import PgConnection, PgError, translated
from ingest.postgres.pg_schema import log_of
from ingest.postgres.selects import literal
from ingest.records.capture_interfaces import LogReplaced, PositionLost

_SLOT = """SELECT plugin, coalesce(database, ''), wal_status, confirmed_flush_lsn, restart_lsn, active_pid,
pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn) FROM pg_replication_slots WHERE slot_name = {}"""
_OLDEST = """SELECT 'pid ' || pid, usename, xact_start FROM pg_stat_activity WHERE backend_xid IS NOT NULL
AND pid <> pg_backend_pid()
UNION ALL SELECT 'prepared transaction ' || quote_literal(gid), owner, prepared FROM pg_prepared_xacts
ORDER BY 3 LIMIT 1"""
_PREFIX = "tailorbird_"
_LONGEST = 63  # bytes of a name; those of topologies and sources are in ASCII
_COUNT = f"SELECT count(*) FROM pg_replication_slots WHERE left(slot_name::text, 11) = '{_PREFIX}'"
_COUNTING = 0x7461696C736C6F74  # key of the advisory lock while slots are counted and created
# seconds to wait for the end of transactions that ran when a slot was created, or a table's first chunk requested
TIMEOUT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotShown:
    """A replication slot as the server describes it. Positions are byte offsets; `kept` is the size of the retained
    log."""

    plugin: str
    database: str
    status: str
    confirmed: int
    active_pid: str
    kept: int

    @property
    def usable(self) -> bool:
        """Return whether capture can read from the slot: its plugin is pgoutput, and the server still has its log."""
        return self.status not in ("lost", "") and self.plugin == "pgoutput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of a source's slot and publication."""

    slot: str
    publication: str


def names_of(topology: str, source: Source) -> Names:
    """Return the names in the topology; without them, both are derived from topology and source, within 63 bytes.

    A longer name ends in a hash, so that names with the same beginning stay distinct.
    """
    own = f"{_PREFIX}{topology}_{source.name}"
    if len(own) > _LONGEST:
        mark = blake2b(own.encode(), digest_size=4).hexdigest()
        own = f"{own[: _LONGEST - len(mark) - 1]}_{mark}"
    return Names(slot=source.slot_name or own, publication=source.publication_name or own)


def slot_of(connection: PgConnection, source: Source, names: Names) -> SlotShown | None:
    """Return the slot; None if it does not exist."""
    with translated(source, "look at the replication slot"):
        rows = connection.texts(_SLOT.format(literal(names.slot)))
    if not rows:
        return None
    plugin, database, status, confirmed, _, pid, kept = rows[0]
    return SlotShown(
        plugin=plugin,
        database=database,
        status=status,
        confirmed=lsn_of(confirmed) if confirmed else 0,
        active_pid=pid,
        kept=int(kept or 0),
    )


def have_slot(connection: PgConnection, source: Source, names: Names) -> None:
    """Create the slot if no usable one exists. Raises Retriable while open transactions prevent that, and UsageError if
    the server would then have more slots of Tailorbird than the policy of its host allows."""
    found = slot_of(connection, source, names)
    if found is not None and found.database not in ("", source.dbname):
        raise UsageError(
            f"source {source.name}: slot {names.slot} belongs to database {found.database}", "slot_name: another"
        )
    if found is not None and found.usable:
        return
    if found is not None:
        _refuse_plugin(source, names, found)
    with _counted_alone(connection, source):
        if found is None:
            _check_number(connection, source, names, further=1)
        _make_slot(connection, source, names, found)
        if found is None:  # a lost slot was counted before, so its successor is no further one
            try:
                _check_number(connection, source, names, further=0)
            except UsageError:  # a source of another database has created one at the same time
                connection.query(f"SELECT pg_drop_replication_slot({literal(names.slot)})")
                raise


@contextmanager
def _counted_alone(connection: PgConnection, source: Source) -> Iterator[None]:
    """Let only one source of the database count and create slots at a time, if a policy limits their number.

    Otherwise two that start together could both drop theirs. Raises Retriable while another one does.
    """
    if source.most_slots is None:
        yield
        return
    with translated(source, "lock the count of replication slots"):
        free = connection.texts(f"SELECT CASE WHEN pg_try_advisory_lock({_COUNTING}) THEN 'yes' ELSE 'no' END")
    if free[0][0] != "yes":
        raise Retriable(f"source {source.name}: another source is creating its replication slot")
    try:
        yield
    finally:
        with translated(source, "unlock the count of replication slots"):
            connection.query(f"SELECT pg_advisory_unlock({_COUNTING})")


def _make_slot(connection: PgConnection, source: Source, names: Names, found: SlotShown | None) -> None:
    """Create the slot, instead of an unusable one if `found`."""
    with translated(source, f"make the replication slot {names.slot}"):
        if found is not None:
            connection.query(f"SELECT pg_drop_replication_slot({literal(names.slot)})")
        # otherwise the server silently waits for open transactions
        connection.query(f"SET statement_timeout = {int(TIMEOUT * 1000)}")
        more = ", failover => true" if connection.version >= 170_000 else ""
        make = f"SELECT pg_create_logical_replication_slot({literal(names.slot)}, 'pgoutput'{more})"
        try:
            connection.query(make)
        except PgError as error:
            if error.state == "57014":
                raise held_up(connection, source, f"the slot {names.slot} cannot be made") from error
            if error.state == "53400":  # all slots are in use
                remedy = "raise max_replication_slots, or drop unused slots (pg_replication_slots)"
                raise UsageError(f"source {source.name}: {error.message}", remedy) from error
            raise
        finally:
            connection.query("SET statement_timeout = 0")


def _check_number(connection: PgConnection, source: Source, names: Names, *, further: int) -> None:
    """Raise UsageError if the server had too many slots with `further` ones.

    A gateway could otherwise assign and withdraw sources under other names until no replica can connect.
    """
    if source.most_slots is None:
        return
    with translated(source, "count the replication slots"):
        number = int(connection.texts(_COUNT)[0][0])
    if number + further > source.most_slots:
        what = f"source {source.name}: the server has {number} slots of Tailorbird, so {names.slot} is not created"
        remedy = "drop unused ones (pg_replication_slots), or raise limits: {slots: N} in the agent's policy"
        raise UsageError(what, remedy)


def _refuse_plugin(source: Source, names: Names, found: SlotShown) -> None:
    """Raise UsageError for a slot of another plugin: another client made it, and dropping it would harm that one."""
    if found.plugin != "pgoutput":
        raise UsageError(
            f"source {source.name}: the replication slot {names.slot} was made for {found.plugin} by another client",
            "set `slot_name` to another name",
        )


def displace(connection: PgConnection, source: Source, names: Names) -> None:
    """Terminate the session that is reading the slot."""
    ended = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = {} AND active"
    with translated(source, f"terminate the reader of the slot {names.slot}"):
        connection.query(ended.format(literal(names.slot)))


def held_up(connection: PgConnection, source: Source, what: str) -> Retriable:
    """Return the error for an operation that waits too long for an open transaction, which the error names.

    With a policy of the host it does not: the error leaves the host, and an application chooses the names of prepared
    transactions."""
    if source.permitted is not None:
        who = "see pg_stat_activity and pg_prepared_xacts"
    else:
        rows = connection.texts(_OLDEST)
        who = f"the oldest: {rows[0][0]} of {rows[0][1]} since {rows[0][2]}" if rows else "it has ended since"
    return Retriable(
        f"source {source.name}: {what} while transactions are open that began before ({who})",
        "end them, or wait for them",
    )


def check_position(connection: PgConnection, source: Source, names: Names, position: Position) -> None:
    """Raise PositionLost if the slot's log is gone, LogReplaced if it is another server's or another client's."""
    over = f"set `position_lost: resnapshot` at source {source.name}: capture then re-reads all tables automatically"
    now = log_of(connection, source)
    system, _, timeline = position.file.partition("/")
    if now.partition("/")[0] != system:
        raise LogReplaced(
            f"source {source.name}: the position is from server {system}, but this is server {now.partition('/')[0]}",
            f"point the source at the right server, or {over}",
        )
    if timeline != now.partition("/")[2]:
        _check_timeline(connection, source, position, over)
    found = slot_of(connection, source, names)
    if found is None:
        raise PositionLost(f"source {source.name}: the replication slot {names.slot} is gone", over)
    if not found.usable:
        _refuse_plugin(source, names, found)
        what = "lost its log (max_slot_wal_keep_size, or another limit of the server)"
        raise PositionLost(f"source {source.name}: the replication slot {names.slot} {what}", over)
    if found.confirmed > position.pos:
        raise LogReplaced(
            f"source {source.name}: the replication slot {names.slot} was advanced to {lsn_text(found.confirmed)}, "
            f"but only {lsn_text(position.pos)} was read",
            f"stop other readers of the slot, or {over}",
        )


def _check_timeline(connection: PgConnection, source: Source, position: Position, over: str) -> None:
    """Raise LogReplaced after a fail-over if the position is not part of the new server's timeline."""
    timeline, now = position.file.partition("/")[2], log_of(connection, source).partition("/")[2]
    with translated(source, "read the timeline's history"):
        rows = connection.texts(f"TIMELINE_HISTORY {now}")
    switches = {line.split()[0]: line.split()[1] for line in rows[0][1].splitlines() if line.strip()[:1].isdigit()}
    if timeline not in switches or lsn_of(switches[timeline]) < position.pos:
        raise LogReplaced(
            f"source {source.name}: the position {lsn_text(position.pos)} of timeline {timeline} is not part of "
            f"timeline {now}, which this server is on",
            over,
        )


def holds(connection: PgConnection, source: Source, names: Names, position: Position) -> bool:
    """Return whether the slot still has the log from a position on."""
    try:
        check_position(connection, source, names, position)
    except PositionLost:
        return False
    return True
