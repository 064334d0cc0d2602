"""The table stage: the topology's own SELECT over the sources' rows beside the table in HBase.

Every table that the query reads is read whole, in one consistent snapshot per source; DuckDB answers the query; once a
barrier covers the snapshots, all rows are compared. What differs, because it is wrong or because it changed in between,
is looked at again:

    the answer of the last snapshots → wait for a barrier that covers them → the rows in HBase → new snapshots, answer

A row counts as wrong that stays of one version in HBase, no newer than what the barrier covers, and is not what the
answer is before and behind that look; and that in several looks on end. A row whose answer changes is moving.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from cdc.model.types import Canonical
from tailorbird.verify.compare import same
from tailorbird.verify.findings import Finding, Kind, Verdict
from tailorbird.verify.rounds import AGREES, MOVED, Looked, Sight, look_again
from tailorbird.verify.verdict_text import timestamp_reported

Row = Mapping[str, Canonical]
# The join and DuckDB may add up the same numbers in another order.
_NEAR = 1e-9
_LONGEST = 120


class Answered(NamedTuple):
    """The query's answer, by row key in hexadecimal, and up to where each source was read at most.

    `refused`: how many rows of the answer can have no row key, so are dead letters and in no table. `unknown`: columns
    that are not compared, which the rows do not have, and why.
    """

    rows: Mapping[str, Row]
    positions: Mapping[str, str]
    refused: int = 0
    unknown: Mapping[str, str] = MappingProxyType({})


class Stored(NamedTuple):
    """A row of HBase: its version (2 · the newest cell's timestamp) and values; None and why, where it can not be
    read."""

    version: int
    values: Row | None
    reason: str = ""


class Wrong(NamedTuple):
    """A row that differs: its key in hexadecimal, what the query's answer has of it, what HBase had (None: nothing)."""

    key: str
    expected: Row | None
    stored: Stored | None

    @property
    def row(self) -> Row | None:
        """The row as the answer has it, else as HBase had; None where it could not be read."""
        return self.expected if self.expected is not None else self.stored and self.stored.values


class TableCompared(NamedTuple):
    """A verdict, and all rows that it found to differ: more than it has findings of, at times."""

    verdict: Verdict
    wrong: tuple[Wrong, ...]


class Sources(Protocol):
    """The near end (tailorbird.verify.table.expected): the query's answer now. Retriable while a source is away."""

    def ask(self) -> Answered: ...


class KeptTable(Protocol):
    """The far end (tailorbird.verify.table.hbase_kept). Retriable while HBase is away.

    `wait` returns the stamp of a barrier that covers positions, None when that takes too long; `written` the newest
    stamp that a batch or barrier was given.
    """

    def scan(self) -> Iterator[tuple[str, Stored]]: ...
    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]: ...
    def written(self) -> int: ...
    def wait(self, positions: Mapping[str, str]) -> int | None: ...


class TableStage:
    """Compares one table with its query's answer; reads only. `seconds` is a clock, `pause` waits between two looks.

    Memory: all rows of the sources' tables, and of the answer.
    """

    def __init__(
        self,
        *,
        table: str,
        row_key: Sequence[str],
        columns: Sequence[str],
        sources: Sources,
        kept: KeptTable,
        seconds: Callable[[], float],
        pause: Callable[[int], None],
        reported: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._table, self._row_key, self._columns = table, tuple(row_key), tuple(columns)
        self._sources, self._kept = sources, kept
        self._seconds, self._pause, self._reported = seconds, pause, reported
        self._asked = Answered({}, {})
        self._unknown: dict[str, str] = {}
        self._timestamp: int | None = None
        self._wrong: dict[str, Wrong] = {}

    def compare(self) -> TableCompared:
        """Every row. Retriable while a server is away."""
        began = self._seconds()
        self._asked = self._ask()
        self._timestamp = self._kept.wait(self._asked.positions)
        if self._timestamp is None:
            return self._compared(Looked(unknown={self._behind(): len(self._asked.rows)}), 0, began)
        suspects, rows = self._suspects()
        return self._compared(self._looked(suspects), rows, began)

    def look(self, keys: Sequence[str]) -> TableCompared:
        """Some rows only, until each is decided."""
        began = self._seconds()
        self._asked = self._ask()
        return self._compared(self._looked(keys), len(keys), began)

    def _ask(self) -> Answered:
        asked = self._sources.ask()
        # once a column is left out it stays so: looks that compare other columns would prove nothing
        self._unknown |= asked.unknown
        return asked

    def _looked(self, keys: Sequence[str]) -> Looked:
        self._wrong = {}
        return look_again(keys, self._look, pause=self._pause, block=max(1, len(keys)))

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

    def _look(self, keys: Sequence[str]) -> dict[str, Sight]:
        before = self._asked
        timestamp = self._kept.wait(before.positions)
        if timestamp is None:
            return dict.fromkeys(keys, Sight(state="uncovered", reason=self._behind()))
        self._timestamp = timestamp
        stored = self._kept.rows(keys)
        # No batch behind the barrier: then what is newer is none of the join's, and no barrier will ever cover it.
        idle = self._kept.written() <= timestamp
        self._asked = after = self._ask()
        return {
            key: self._judged(key, before.rows.get(key), stored.get(key), after.rows.get(key), timestamp, idle=idle)
            for key in keys
        }

    def _judged(
        self, key: str, before: Row | None, stored: Stored | None, after: Row | None, timestamp: int, *, idle: bool
    ) -> Sight:
        if equal(before, stored, self._unknown) or equal(after, stored, self._unknown):
            return AGREES
        if _without(before, self._unknown) != _without(after, self._unknown):
            return MOVED
        if stored is not None and stored.version > 2 * (timestamp + 1) and not idle:
            return MOVED
        evidence = (stored and stored.version, repr(stored and stored.values), repr(before))
        self._wrong[key] = Wrong(key, before, stored)
        return Sight(state="differs", evidence=evidence, finding=self._finding(key, before, stored))

    def _finding(self, key: str, expected: Row | None, stored: Stored | None) -> Finding:
        near, far = expected or {}, (stored.values if stored else None) or {}
        kind: Kind = "extra" if expected is None else "missing" if stored is None else "different"
        names = [n for n in dict.fromkeys([*near, *far]) if n not in self._unknown] if kind == "different" else ()
        at = "; ".join(f"{source} at {_short(position)}" for source, position in self._asked.positions.items())
        reported = [f"row {key}", *([f"HBase's stamp {stored.version // 2}"] if stored else []), at]
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

    def _compared(self, looked: Looked, rows: int, began: float) -> TableCompared:
        at = "; ".join(f"{source} at {_short(position)}" for source, position in self._asked.positions.items())
        refused = self._asked.refused
        why = (f"{refused:,} rows of the answer can have no row key: dead letters",) if refused else ()
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
        return TableCompared(verdict, tuple(self._wrong[key] for key in looked.differing))


def _without(row: Row | None, columns: Container[str]) -> Row | None:
    return None if row is None else {name: value for name, value in row.items() if name not in columns}


def equal(expected: Row | None, stored: Stored | None, unknown: Container[str] = ()) -> bool:
    """Whether HBase holds what the query's answer is, but for `unknown` columns; one that either lacks is NULL."""
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
