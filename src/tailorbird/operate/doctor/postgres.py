"""Find faults that prevent the capture of a PostgreSQL source, in the answers that its server gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cdc.topology.topology import Source
from tailorbird.operate.doctor.doctor import Checkup, Status, TableInspection

HELD = 10_000_000  # transactions: a warning if a slot keeps catalogue rows from vacuum for so many
OPEN = 600  # seconds: a warning if a transaction of a capture is open for so long
OLDEST = 150_000
_Printer = Callable[..., Checkup]


@dataclass(frozen=True, slots=True, kw_only=True)
class PgTableInspection:
    """State of a captured table of PostgreSQL. `identity` is its replica identity (d, n, f, i).

    `refused` is the reason why capture would refuse it, with the remedy, or None. `published`: the publication
    contains it. `large` are columns whose values may be stored out of line (TOAST)."""

    table: TableInspection
    identity: str = "d"
    refused: tuple[str, str] | None = None
    published: bool = False
    large: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PgServerInspection:
    """Answers of a PostgreSQL server. `replication`: the user may read its log. `slot` is empty if it does not exist
    yet.

    - `kept`: bytes of the log that the server keeps for the slot. `free_slots`: number of slots that can be created.
    - `held`: age, in transactions, of the oldest catalog rows that the slot protects from vacuum.
    - `open_s`: age in seconds of the oldest transaction of a capture, which protects dead rows of every table from
      vacuum."""

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


def judge_postgres(source: Source, inspection: PgServerInspection, grants: Sequence[str]) -> list[Checkup]:
    """Return all findings about a source's server, in the order in which to fix them.

    `inspection` are the answers of the server, `grants` the statements for missing privileges."""
    subject = f"source {source.name}"

    def say(check: str, status: Status, found: str, remedy: str = "") -> Checkup:
        return Checkup(subject=subject, check=check, status=status, found=found, remedy=remedy)

    major = f"PostgreSQL {inspection.version // 10_000}.{inspection.version % 10_000}"
    reported = [
        say("version", "ok", major)
        if inspection.version >= OLDEST
        else say(
            "version", "fault", f"{major}: 15 is the oldest supported version", "upgrade it, or poll it (type: sql)"
        )
    ]
    if inspection.standby:
        reported.append(
            say("role", "fault", "a standby: its snapshots omit open transactions", "point the source at the primary")
        )
    level = inspection.settings.get("wal_level", "")
    remedy = "ALTER SYSTEM SET wal_level = logical, and restart the server"
    reported.append(say("wal_level", "ok", level) if level == "logical" else say("wal_level", "fault", level, remedy))
    lacking = [] if inspection.replication else ["REPLICATION"]
    lacking += [
        f"SELECT on {one.table.name}" for one in inspection.tables if one.table.readable and not one.table.absent
    ]
    if lacking:
        reported.append(say("grants", "fault", f"lacks {', '.join(lacking)}", "; ".join(grants)))
    else:
        reported.append(say("grants", "ok", "all required privileges"))
    reported.append(_slot(say, inspection, source.alarm_slot))
    reported.append(_published(say, inspection))
    reported.append(_limit(say, inspection))
    reported.append(_vacuum(say, inspection))
    for one in inspection.tables:
        reported += _table(say, source, one)
    return reported


def _slot(say: _Printer, inspection: PgServerInspection, most: int) -> Checkup:
    if not inspection.slot:
        if inspection.free_slots > 0:
            return say("slot", "ok", "the first start creates it")
        return say("slot", "fault", "no slot is free", "raise max_replication_slots, or drop unused slots")
    if inspection.slot in ("lost", "unreserved"):
        remedy = "raise max_slot_wal_keep_size; capture then reads all tables again, except with `position_lost: fail`"
        return say("slot", "fault" if inspection.slot == "lost" else "warning", f"its log is {inspection.slot}", remedy)
    if inspection.kept > most:
        found = f"the server keeps {inspection.kept / (1 << 30):.1f} GiB of its log for it"
        return say(
            "slot",
            "warning",
            found,
            "find out why the capture makes no progress, or run pg_drop_replication_slot if it was removed",
        )
    return say("slot", "ok", f"keeps {inspection.kept / (1 << 20):.1f} MiB of the log")


def _limit(say: _Printer, inspection: PgServerInspection) -> Checkup:
    """Check how far the capture may lag before the server discards the log that it needs."""
    limit = int(inspection.settings.get("max_slot_wal_keep_size", "-1"))
    if limit < 0:
        return say("max_slot_wal_keep_size", "ok", "-1: a stopped capture loses no changes, but the log fills the disk")
    found = f"{limit} MB: a capture with a larger lag must start again"
    if inspection.kept > limit << 19:  # at half of the limit
        remedy = "find out why the capture lags: `tailorbird status`; or raise max_slot_wal_keep_size"
        return say("max_slot_wal_keep_size", "warning", f"{found}; {inspection.kept >> 20} MB are kept already", remedy)
    return say("max_slot_wal_keep_size", "ok", found)


def _vacuum(say: _Printer, inspection: PgServerInspection) -> Checkup:
    """Check how many dead rows the capture prevents vacuum from removing."""
    if inspection.open_s > OPEN:
        found = (
            f"a transaction of a capture has been open for {inspection.open_s:,} s and keeps dead rows of all tables"
        )
        remedy = "it ends with the snapshot of its table; tables with a key that can be ordered are read in short parts"
        return say("vacuum", "warning", found, remedy)
    if inspection.held > HELD:
        found = f"the slot keeps dead rows of the catalogue since {inspection.held:,} transactions ago"
        return say(
            "vacuum", "warning", found, "find out why the capture makes no progress, or drop the slot if it was removed"
        )
    return say("vacuum", "ok", "the capture does not delay it")


def _published(say: _Printer, inspection: PgServerInspection) -> Checkup:
    missing = [one.table.name for one in inspection.tables if not one.published and not one.table.absent]
    if not missing:
        return say("publication", "ok", "contains every table")
    found = f"lacks {', '.join(missing)}"
    if inspection.may_publish:
        return say("publication", "ok", f"{found}: capture adds them when it starts")
    return say("publication", "fault", f"{found}, and the user may not add them", "; ".join(inspection.publish))


def _table(say: _Printer, source: Source, one: PgTableInspection) -> list[Checkup]:
    table = one.table
    if table.absent:
        return [say(table.name, "fault", "does not exist", "correct `tables:`, `database:` or `dbname:`")]
    if table.readable is not None:
        return []
    if one.refused is not None:
        return [say(table.name, "fault", *one.refused)]
    alter = f"ALTER TABLE {table.name} REPLICA IDENTITY FULL"
    if one.identity != "f" and one.large:
        names = ", ".join(one.large)
        found = f"an UPDATE that does not change a large {names} does not log it: the row is read again by its key"
        return [say(table.name, "warning", found, f"{alter}, which logs whole rows")]
    if one.identity == "f" and source.replica_identity != "full":
        found = "logs whole rows, but the topology does not use them"
        return [
            say(
                table.name,
                "ok",
                found,
                "set `replica_identity: full` once all tables log whole rows: joins then keep less state",
            )
        ]
    return [say(table.name, "ok", "readable, with a key")]
