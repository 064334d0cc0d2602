"""What keeps a PostgreSQL source from being captured, judged from what its server said; with each fault its remedy.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cdc.topology.topology import Source
from tailorbird.operate.doctor.doctor import Checkup, Status, TableInspection

HELD = 10_000_000  # transactions whose rows of the catalogue a slot keeps from vacuum
OPEN = 600  # seconds that a transaction of a capture may be open
KEPT = 4 << 30  # bytes of its log that a server keeps for a slot, from which on somebody had better look
OLDEST = 150_000
_Printer = Callable[..., Checkup]


@dataclass(frozen=True, slots=True, kw_only=True)
class PgTableInspection:
    """A table, as `doctor.TableInspection`; its replica `identity` (d, n, f, i) and the columns that it tells, None:
    all.

    `refused` is why capture would not take it, with the remedy; `large` names columns whose values may be stored apart.
    """

    table: TableInspection
    identity: str = "d"
    refused: tuple[str, str] | None = None
    published: bool = False
    large: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PgServerInspection:
    """What a server said. `replication` whether the user may read its log; `slot` is empty where there is none yet.

    `kept` bytes of the log are kept for the slot; `free_slots` others can be made. `held`: how many transactions ago
    the oldest began whose rows of the catalogue the slot keeps from vacuum; `open_s`: for how many seconds the oldest
    transaction of a capture has been open, which keeps dead rows of every table from vacuum.
    """

    version: int
    settings: Mapping[str, str]
    standby: bool
    replication: bool
    slot: str
    kept: int
    free_slots: int
    may_publish: bool
    publish: Sequence[str]
    tables: Sequence[PgTableInspection] = field(default_factory=tuple)
    held: int = 0
    open_s: int = 0


def judge_postgres(source: Source, log_events: PgServerInspection, grants: Sequence[str]) -> list[Checkup]:
    """Everything that is to be said about a source's server, in the order in which one would mend it."""
    subject = f"source {source.name}"

    def say(check: str, status: Status, found: str, remedy: str = "") -> Checkup:
        return Checkup(subject=subject, check=check, status=status, found=found, remedy=remedy)

    major = f"PostgreSQL {log_events.version // 10_000}.{log_events.version % 10_000}"
    reported = [
        say("version", "ok", major)
        if log_events.version >= OLDEST
        else say("version", "fault", f"{major}: 15 is the oldest captured", "upgrade it, or poll it (type: sql)")
    ]
    if log_events.standby:
        reported.append(
            say("role", "fault", "a standby: its snapshots omit what runs", "point the source at the primary")
        )
    level = log_events.settings.get("wal_level", "")
    remedy = "ALTER SYSTEM SET wal_level = logical, and restart the server"
    reported.append(say("wal_level", "ok", level) if level == "logical" else say("wal_level", "fault", level, remedy))
    lacking = [] if log_events.replication else ["REPLICATION"]
    lacking += [
        f"SELECT on {one.table.name}" for one in log_events.tables if one.table.readable and not one.table.absent
    ]
    if lacking:
        reported.append(say("grants", "fault", f"lacks {', '.join(lacking)}", "; ".join(grants)))
    else:
        reported.append(say("grants", "ok", "all that is needed"))
    reported.append(_slot(say, log_events))
    reported.append(_published(say, log_events))
    reported.append(_limit(say, log_events))
    reported.append(_vacuum(say, log_events))
    for one in log_events.tables:
        reported += _table(say, source, one)
    return reported


def _slot(say: _Printer, log_events: PgServerInspection) -> Checkup:
    if not log_events.slot:
        if log_events.free_slots > 0:
            return say("slot", "ok", "is made by the first start")
        return say("slot", "fault", "no slot is free", "raise max_replication_slots, or drop slots that nobody reads")
    if log_events.slot in ("lost", "unreserved"):
        remedy = "raise max_slot_wal_keep_size; `position_lost: resnapshot` has all tables read again"
        return say("slot", "fault" if log_events.slot == "lost" else "warning", f"its log is {log_events.slot}", remedy)
    if log_events.kept > KEPT:
        found = f"the server keeps {log_events.kept / (1 << 30):.1f} GiB of its log for it"
        return say(
            "slot", "warning", found, "see why the capture stands still, or pg_drop_replication_slot if it is gone"
        )
    return say("slot", "ok", f"keeps {log_events.kept / (1 << 20):.1f} MiB of the log")


def _limit(say: _Printer, log_events: PgServerInspection) -> Checkup:
    """How far a capture may fall behind."""
    limit = int(log_events.settings.get("max_slot_wal_keep_size", "-1"))
    if limit < 0:
        return say("max_slot_wal_keep_size", "ok", "-1: a capture that is down fills the disk, and loses nothing")
    found = f"{limit} MB: a capture that falls behind further begins again"
    if log_events.kept > limit << 19:  # half of it
        remedy = "see why the capture is behind: `tailorbird status`; or raise max_slot_wal_keep_size"
        return say("max_slot_wal_keep_size", "warning", f"{found}; {log_events.kept >> 20} MB are kept already", remedy)
    return say("max_slot_wal_keep_size", "ok", found)


def _vacuum(say: _Printer, log_events: PgServerInspection) -> Checkup:
    """What the source's vacuum cannot remove because of us."""
    if log_events.open_s > OPEN:
        found = (
            f"a transaction of a capture has been open for {log_events.open_s:,} s and keeps dead rows of all tables"
        )
        remedy = "it ends with the snapshot of its table; tables with a key that can be ordered are read in short parts"
        return say("vacuum", "warning", found, remedy)
    if log_events.held > HELD:
        found = f"the slot keeps dead rows of the catalogue since {log_events.held:,} transactions ago"
        return say("vacuum", "warning", found, "see why the capture stands still, or drop the slot if it is gone")
    return say("vacuum", "ok", "nothing of ours holds it back")


def _published(say: _Printer, log_events: PgServerInspection) -> Checkup:
    missing = [one.table.name for one in log_events.tables if not one.published and not one.table.absent]
    if not missing:
        return say("publication", "ok", "has every table")
    found = f"lacks {', '.join(missing)}"
    if log_events.may_publish:
        return say("publication", "ok", f"{found}: capture adds them when it starts")
    return say("publication", "fault", f"{found}, which the user may not add", "; ".join(log_events.publish))


def _table(say: _Printer, source: Source, one: PgTableInspection) -> list[Checkup]:
    table = one.table
    if table.absent:
        return [say(table.name, "fault", "is not there", "correct `tables:`, `database:` or `dbname:`")]
    if table.readable is not None:
        return []
    if one.refused is not None:
        return [say(table.name, "fault", *one.refused)]
    alter = f"ALTER TABLE {table.name} REPLICA IDENTITY FULL"
    if one.identity != "f" and one.large:
        names = ", ".join(one.large)
        found = f"an UPDATE that leaves a large {names} alone does not tell it: the row is read again by its key"
        return [say(table.name, "warning", found, f"{alter}, which logs whole rows")]
    if one.identity == "f" and source.replica_identity != "full":
        found = "tells whole rows, of which the topology does not know"
        return [say(table.name, "ok", found, "replica_identity: full, once all tables do: joins keep less then")]
    return [say(table.name, "ok", "readable, with a key")]
