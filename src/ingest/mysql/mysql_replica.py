"""Read tables from a replica while the log is read from its primary, and check that both are one data set.

A chunk that the replica returns has a position: the set of transactions that the replica has executed. The stream joins
it where the log of the primary has reached this set. So the set must be a part of the primary's, or the stream would
never reach it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from cdc.model.errors import UsageError
from cdc.topology.topology import Source
from ingest.mysql.mysql_connection import Connection, connected, named, query, translated

COMMITS = 30  # seconds within which the primary commits what its replica has executed
_SYSTEM = {"mysql", "sys"}  # databases that no statement shares with a captured table
_TABLE_FILTERS = {"Replicate_Ignore_Table", "Replicate_Wild_Ignore_Table"}


class PrimaryCheck:
    """Compares a replica's transactions with those of the primary, over a connection to the latter."""

    def __init__(self, primary: Connection, source: Source) -> None:
        self._primary, self._source = primary, source

    def check(self, executed: str) -> None:
        """Raise UsageError if the primary lacks transactions of `executed`, the GTID set of its replica.

        A replica may execute a transaction while its primary still commits it, for example while that waits for the
        acknowledgement of another replica (semi-synchronous replication). So the primary is given half a minute.
        """
        with translated(self._source, "compare the replica with its primary"):
            rest = self._rest(executed)
            if rest:
                query(self._primary, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", rest, COMMITS)
                rest = self._rest(rest)
        if rest:
            shown = rest if len(rest) < 200 else f"{rest[:200]}…"
            raise UsageError(
                f"source {self._source.name}: {named(self._source)} has transactions that its primary lacks ({shown})",
                "choose a replica of this server under `snapshot:`, which no other client writes to",
            )

    def _rest(self, executed: str) -> str:
        sql = "SELECT GTID_SUBTRACT(%s, @@GLOBAL.gtid_executed)"
        return str(query(self._primary, sql, executed)[0][0]).replace("\n", "")


def on_replica(source: Source) -> Source:
    """Return the source as its tables are read: with the address of its replica, if it has one."""
    if source.snapshot is None:
        return source
    at = source.snapshot
    return replace(source, hostname=at.hostname, port=at.port, tls=at.tls)


@contextmanager
def primary_check(source: Source, replica: Connection) -> Iterator[PrimaryCheck | None]:
    """Connect to the primary of a source for the block, and check its replica, to which `replica` is connected.

    Returns None if the source's tables are not read from a replica. Raises the errors of `check_replica`.
    """
    if source.snapshot is None:
        yield None
        return
    with connected(source) as primary:
        check_replica(primary, replica, source)
        yield PrimaryCheck(primary, source)


def check_replica(primary: Connection, replica: Connection, source: Source) -> None:
    """Raise UsageError if the tables of a source cannot be read from its replica.

    Both servers need GTIDs, the replica must have all transactions that the primary has purged from its log, and must
    apply all changes of the captured databases: a filtered transaction counts as executed. So it must also receive them
    from the primary itself, because a server between the two may have filters.
    """
    at = on_replica(source)
    purged = _purged(primary, source, "primary")
    _purged(replica, at, named(source))
    channels = status_of(replica, at)
    found = filters_of(channels, source.databases)
    filtered = ", ".join(f"{name}: {value}" if source.permitted is None else name for name, value in found)
    if filtered:
        raise UsageError(
            f"source {source.name}: {named(source)} does not apply all changes of its primary ({filtered})",
            "choose a replica without this filter under `snapshot:`",
        )
    with translated(at, "read the transactions of the replica"):
        executed = str(query(replica, "SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
    PrimaryCheck(primary, source).check(executed)
    with translated(source, "compare the replica with its primary"):
        ((complete,),) = query(primary, "SELECT GTID_SUBSET(%s, %s)", purged, executed)
        uuid = str(query(primary, "SELECT @@GLOBAL.server_uuid")[0][0])
    if str(complete) != "1":
        raise UsageError(
            f"source {source.name}: {named(source)} lacks transactions that its primary has purged from the log",
            "choose a replica of this server under `snapshot:`",
        )
    if indirect := why_indirect(channels, uuid):
        raise UsageError(
            f"source {source.name}: {named(source)} {indirect}",
            "choose a server under `snapshot:` that replicates directly from the source's own",
        )


def why_indirect(status: Collection[Mapping[str, str]], primary: str) -> str:
    """Return why a server with these channels is no direct replica of the one with the UUID `primary`; "" if it is."""
    if not status:
        return "replicates from no server"
    others = {one.get("Master_UUID", "") for one in status} - {primary}
    if "" in others:
        return "has not yet connected to the server from which it replicates"
    return f"replicates from another server than its primary ({', '.join(sorted(others))})" if others else ""


def status_of(replica: Connection, source: Source) -> list[dict[str, str]]:
    """Return what SHOW REPLICA STATUS returns, one mapping per channel, with the names that MySQL had before 8.0.22."""
    with translated(source, "read the state of the replica"), replica.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        version = tuple(int(number) for number in re.findall(r"\d+", str(cursor.fetchall()[0][0]))[:3])
        cursor.execute("SHOW REPLICA STATUS" if version >= (8, 0, 22) else "SHOW SLAVE STATUS")
        shown = [one[0] for one in cursor.description or ()]
        names = [name.replace("Replica_", "Slave_").replace("Source_", "Master_") for name in shown]
        return [dict(zip(names, map(str, row), strict=True)) for row in cursor.fetchall()]


def filters_of(status: Iterable[Mapping[str, str]], databases: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the filters, as (name, value), by which a replica may skip changes of some captured databases.

    `status` has the channels of SHOW REPLICA STATUS. Only ignored tables of system databases are harmless. A filter by
    database concerns the default database of a statement: with `Replicate_Ignore_DB: test`, a replica skips `USE test;
    TRUNCATE shop.orders`. With an ignored table, it skips a statement that names several tables, such as DROP TABLE.
    """
    harmless = _SYSTEM.difference(databases)
    for channel in status:
        for name, value in channel.items():
            if not name.startswith("Replicate_") or not value:
                continue
            ignored = {one.partition(".")[0].strip() for one in value.split(",")}
            if name not in _TABLE_FILTERS or not ignored <= harmless:
                yield name, value


def why_late(replica: Connection, source: Source) -> str:
    """Return why a replica may lack transactions, without any text of the server, which may contain values of rows."""
    channels = status_of(replica, source)
    if not channels:
        return "it replicates from no server"
    names = {"Slave_IO_Running": "receives nothing", "Slave_SQL_Running": "applies nothing"}
    stopped = [what for name, what in names.items() if any(one.get(name) != "Yes" for one in channels)]
    return f"it {' and '.join(stopped)}: see SHOW REPLICA STATUS there" if stopped else "it is late"


def _purged(connection: Connection, source: Source, which: str) -> str:
    """Return the transactions that a server has purged from its log. Raises UsageError if it has no GTIDs."""
    with translated(source, "read the server's variables"):
        version = str(query(connection, "SELECT VERSION()")[0][0])
        gtids = "mariadb" not in version.lower() and str(query(connection, "SELECT @@GLOBAL.gtid_mode")[0][0]) == "ON"
        if gtids:
            return str(query(connection, "SELECT @@GLOBAL.gtid_purged")[0][0]).replace("\n", "")
    raise UsageError(
        f"source {source.name}: `snapshot:` needs GTIDs of MySQL, which the {which} ({version}) does not have",
        "SET PERSIST gtid_mode = ON, or remove `snapshot:`",
    )
