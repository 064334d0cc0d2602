"""Compare the result of a table's SELECT over the sources with the table in HBase.

Every source table of the query is read completely, in one consistent snapshot per source, and DuckDB runs the query.
Once a barrier in HBase is at or after the snapshots, all rows are compared. A row may differ only because it changed
in the meantime. So it is compared again, in this order:

    result of the last snapshots → wait for a barrier after them → read rows in HBase → new snapshots and result

A row is wrong if two conditions hold in several rounds in a row. It keeps the same version in HBase, older than the
barrier. And it differs from the results before and after it is read. If the results differ from one another, the row
is moving.

If the query uses `now()`, each result is that of the table's clock at the time: the one in the newest barrier. The
clocks of both results enclose the one of the rows, so a row whose time ends meanwhile is moving."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from cdc.model.types import Canonical
from tailorbird.verify.compare import same
from tailorbird.verify.findings import Finding, Kind, Verdict
from tailorbird.verify.rounds import AGREES, MOVED, RecheckResult, RowObservation, recheck
from tailorbird.verify.verdict_text import moment_reported, timestamp_reported

Row = Mapping[str, Canonical]
# The join and DuckDB may add the same numbers in a different order.
_NEAR = 1e-9
_LONGEST = 120


class QueryAnswer(NamedTuple):
    """The result of the query by hexadecimal row key, and each source's position, at or after its snapshot.

    `refused` is the number of rows without a valid row key, which the join makes dead letters. `unknown` are columns
    that are left out and not compared, with reasons. `clock` (ms) is what `now()` meant, None without it."""

    rows: Mapping[str, Row]
    positions: Mapping[str, str]
    refused: int = 0
    unknown: Mapping[str, str] = MappingProxyType({})
    clock: int | None = None


class Stored(NamedTuple):
    """A row of HBase: its version (2 · the timestamp of the newest cell), and its values or why it cannot be
    decoded."""

    version: int
    values: Row | None
    reason: str = ""


class DifferingRow(NamedTuple):
    """A row that differs: its hexadecimal key, the expected row, and the row in HBase. None means that there is
    none."""

    key: str
    expected: Row | None
    stored: Stored | None

    @property
    def row(self) -> Row | None:
        """Return the expected row, or else the row in HBase. None if it could not be decoded."""
        return self.expected if self.expected is not None else self.stored and self.stored.values


class TableComparison(NamedTuple):
    """A verdict, and all differing rows. The verdict has only the first findings."""

    verdict: Verdict
    wrong: tuple[DifferingRow, ...]


class Sources(Protocol):
    """The near end: the current result of the query (tailorbird.verify.table.source_query).

    Raises Retriable while a source is unavailable."""

    def ask(self) -> QueryAnswer: ...


class StoredRowsReader(Protocol):
    """The far end (tailorbird.verify.table.hbase_stored_rows). Raises Retriable while HBase is unavailable.

    `wait` returns the timestamp of a barrier at or after the positions, or None if that takes too long. `written`
    returns the newest timestamp of a batch or barrier."""

    def scan(self) -> Iterator[tuple[str, Stored]]: ...
    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]: ...
    def written(self) -> int: ...
    def wait(self, positions: Mapping[str, str]) -> int | None: ...


class TableStage:
    """Compares one table with the result of its query. Read-only. `seconds` is a clock, `pause` waits between two
    rounds.

    All rows of the source tables and of the result are in memory."""

    def __init__(
        self,
        *,
        table: str,
        row_key: Sequence[str],
        columns: Sequence[str],
        sources: Sources,
        kept: StoredRowsReader,
        seconds: Callable[[], float],
        pause: Callable[[int], None],
        reported: Callable[[int], None] = lambda rows: None,
        store: str = "HBase",
    ) -> None:
        self._table, self._row_key, self._columns = table, tuple(row_key), tuple(columns)
        self._sources, self._kept = sources, kept
        self._store = store
        self._seconds, self._pause, self._reported = seconds, pause, reported
        self._asked = QueryAnswer({}, {})
        self._unknown: dict[str, str] = {}
        self._timestamp: int | None = None
        self._wrong: dict[str, DifferingRow] = {}

    def compare(self) -> TableComparison:
        """Compare every row. Raises Retriable while a server is unavailable."""
        began = self._seconds()
        self._asked = self._ask()
        self._timestamp = self._kept.wait(self._asked.positions)
        if self._timestamp is None:
            return self._compared(RecheckResult(unknown={self._behind(): len(self._asked.rows)}), 0, began)
        suspects, rows = self._suspects()
        return self._compared(self._looked(suspects), rows, began)

    def look(self, keys: Sequence[str]) -> TableComparison:
        """Compare only these rows until each is decided."""
        began = self._seconds()
        self._asked = self._ask()
        return self._compared(self._looked(keys), len(keys), began)

    def _ask(self) -> QueryAnswer:
        asked = self._sources.ask()
        # a column that was omitted once stays omitted: all rounds must compare the same columns
        self._unknown |= asked.unknown
        return asked

    def _looked(self, keys: Sequence[str]) -> RecheckResult:
        self._wrong = {}
        return recheck(keys, self._look, pause=self._pause, block=max(1, len(keys)))

    def _suspects(self) -> tuple[list[str], int]:
        expected, suspects, rows = self._asked.rows, list[str](), 0
        met: set[str] = set()
        for key, stored in self._kept.scan():
            rows += 1
            met.add(key)
            if not equal(expected.get(key), stored, self._unknown):
                suspects.append(key)
            if rows % 1000 == 0:
                self._reported(1000)
        self._reported(rows % 1000)
        missing = [key for key in expected if key not in met]
        return suspects + missing, rows + len(missing)

    def _look(self, keys: Sequence[str]) -> dict[str, RowObservation]:
        before = self._asked
        timestamp = self._kept.wait(before.positions)
        if timestamp is None:
            return dict.fromkeys(keys, RowObservation(state="uncovered", reason=self._behind()))
        self._timestamp = timestamp
        stored = self._kept.rows(keys)
        # Without a batch after the barrier, a newer version is not from the join, and no barrier will ever cover it.
        idle = self._kept.written() <= timestamp
        self._asked = after = self._ask()
        return {
            key: self._judged(key, before.rows.get(key), stored.get(key), after.rows.get(key), timestamp, idle=idle)
            for key in keys
        }

    def _judged(
        self, key: str, before: Row | None, stored: Stored | None, after: Row | None, timestamp: int, *, idle: bool
    ) -> RowObservation:
        if equal(before, stored, self._unknown) or equal(after, stored, self._unknown):
            return AGREES
        if _without(before, self._unknown) != _without(after, self._unknown):
            return MOVED
        if stored is not None and stored.version > 2 * (timestamp + 1) and not idle:
            return MOVED
        evidence = (stored and stored.version, repr(stored and stored.values), repr(before))
        self._wrong[key] = DifferingRow(key, before, stored)
        return RowObservation(state="differs", evidence=evidence, finding=self._finding(key, before, stored))

    def _finding(self, key: str, expected: Row | None, stored: Stored | None) -> Finding:
        near, far = expected or {}, (stored.values if stored else None) or {}
        kind: Kind = "extra" if expected is None else "missing" if stored is None else "different"
        names = [n for n in dict.fromkeys([*near, *far]) if n not in self._unknown] if kind == "different" else ()
        at = "; ".join(f"{source} at {_short(position)}" for source, position in self._asked.positions.items())
        reported = [f"row {key}", *([f"{self._store}'s timestamp {stored.version // 2}"] if stored else []), at]
        if stored is not None and stored.reason:
            reported.append(stored.reason)
        known = near or far
        return Finding(
            stage="table",
            table=self._table,
            key={name: known.get(name) for name in self._row_key} if known else {"row": key},
            kind=kind,
            columns={n: (near.get(n), far.get(n)) for n in names if not _close(near.get(n), far.get(n))},
            position=", ".join(reported),
        )

    def _behind(self) -> str:
        at = "; ".join(f"{source} at {_short(position)}" for source, position in self._asked.positions.items())
        return f"no barrier of the table covers {at}"

    def _compared(self, looked: RecheckResult, rows: int, began: float) -> TableComparison:
        at = "; ".join(f"{source} at {_short(position)}" for source, position in self._asked.positions.items())
        if self._asked.clock is not None:
            at += f", now() = {moment_reported(self._asked.clock)}"
        refused = self._asked.refused
        why = (f"{refused:,} rows of the answer have no valid row key: dead letters",) if refused else ()
        verdict = Verdict(
            stage="table",
            table=self._table,
            rows=rows,
            leaves=0,
            cut=f"{timestamp_reported(self._timestamp)}, {at}",
            columns=tuple(name for name in self._columns if name not in self._unknown),
            uncompared=dict(self._unknown),
            findings=tuple(looked.findings),
            differing=len(looked.differing),
            moving=looked.moving,
            unknown=looked.reasons + why,
            seconds=self._seconds() - began,
        )
        return TableComparison(verdict, tuple(self._wrong[key] for key in looked.differing))


def _without(row: Row | None, columns: Container[str]) -> Row | None:
    return None if row is None else {name: value for name, value in row.items() if name not in columns}


def equal(expected: Row | None, stored: Stored | None, unknown: Container[str] = ()) -> bool:
    """Return whether the row in HBase is the expected one, apart from `unknown` columns. A missing column counts as
    NULL."""
    if expected is None or stored is None:
        return expected is None and stored is None
    values = stored.values
    if values is None:
        return False
    names = expected.keys() | values.keys()
    return all(name in unknown or _close(expected.get(name), values.get(name)) for name in names)


def _close(a: Canonical, b: Canonical) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=_NEAR) or (math.isnan(a) and math.isnan(b))
    return same(a, b)


def _short(position: str) -> str:
    return position if len(position) <= _LONGEST else f"{position[:_LONGEST]}…"
