"""A plan run in memory, batch by batch, through the same steps, encodings and stamps as the real query.

Laws and the conformance suite drive it. What stands for servers: a dictionary of stored states that commits or is
thrown away with its batch, and a table that knows only HBase's rule, the newest timestamp wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cdc.cells import RowCodec
from cdc.types import Canonical
from joins.plan import Plan
from joins.records import DimensionSeen, FactSeen, Part, Pointed, Record, Refused, dump_record, load_record
from joins.route import Router, Settled
from joins.sink import Cells, next_stamp, writes_of
from joins.state import assemble_step, dump_hop, dump_row, hop_step, load_hop, load_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One record of a change topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class StoredTable:
    """Rows as HBase keeps them: per row the newest put and the newest delete, each with its timestamp."""

    puts: dict[bytes, tuple[int, Cells]] = field(default_factory=dict)
    deletes: dict[bytes, int] = field(default_factory=dict)

    def put(self, row: bytes, cells: Cells, timestamp: int) -> None:
        """Put a whole row."""
        if row not in self.puts or timestamp >= self.puts[row][0]:
            self.puts[row] = (timestamp, cells)

    def delete(self, row: bytes, timestamp: int) -> None:
        """Delete what is not younger."""
        self.deletes[row] = max(timestamp, self.deletes.get(row, 0))

    def live(self) -> dict[bytes, Cells]:
        """The rows that a scan shows."""
        return {row: cells for row, (at, cells) in self.puts.items() if at > self.deletes.get(row, -1)}


class Simulation:
    """One query: `run_batch` as often as wished; `commit=False` is a driver that died after its last write."""

    def __init__(self, plan: Plan, settled: Settled) -> None:
        self.plan, self.settled = plan, settled
        self.codec = RowCodec(plan.layout(1))
        names = [output.name for output in plan.assemble.outputs]
        self.row_key = tuple(names.index(name) for name in plan.sink.row_key)
        self.hops: dict[tuple[int, str], bytes] = {}
        self.rows: dict[str, bytes] = {}
        self.table = StoredTable()
        self.refused: list[Refused] = []
        self.batch, self.stamp = 0, 0
        self._bound: dict[int, int] = {}

    def run_batch(self, records: Sequence[Logged], *, now_ms: int, commit: bool = True) -> None:
        """Run one batch; its records may come in any order that keeps each key's."""
        hops, rows = dict(self.hops), dict(self.rows)
        stamp = self._bound.setdefault(self.batch, next_stamp(now_ms, self.stamp))
        router = Router(self.plan, self.settled)
        routed = [r for one in records for r in router.route(one.topic, one.partition, one.offset, one.key, one.value)]
        after_hops = self._hops(_carried(routed), hops)
        result = self._rows(_carried(after_hops), rows)
        writes = writes_of(_carried(result), self.codec, self.batch)
        for row in writes.deletes:
            self.table.delete(row, stamp)
        for row, cells in writes.puts:
            self.table.put(row, cells, stamp + 1)
        self.refused += writes.refused
        if commit:
            self.hops, self.rows, self.stamp = hops, rows, stamp
            self.batch += 1

    def live(self) -> dict[tuple[Canonical, ...], dict[str, Canonical]]:
        """Row key → columns of every live row, decoded from its cells."""
        decoded = [self.codec.row(cells).values for cells in self.table.live().values()]
        return {tuple(row[name] for name in self.plan.sink.row_key): row for row in decoded}

    def _hops(self, records: Iterable[Record], states: dict[tuple[int, str], bytes]) -> list[Record]:
        groups: dict[tuple[int, str], list[Pointed | DimensionSeen]] = {}
        passing: list[Record] = []
        for record in records:
            if isinstance(record, Pointed | DimensionSeen):
                groups.setdefault((record.hop, record.key), []).append(record)
            else:
                passing.append(record)
        for (hop, key), some in groups.items():
            before = states.pop((hop, key), None)
            state, parts = hop_step(None if before is None else load_hop(before), some, hop, key)
            if state is not None:
                states[hop, key] = dump_hop(state)
            passing += parts
        return passing

    def _rows(self, records: Iterable[Record], states: dict[str, bytes]) -> list[Record]:
        groups: dict[str, list[FactSeen | Part]] = {}
        passing: list[Record] = []
        for record in records:
            if isinstance(record, FactSeen | Part):
                groups.setdefault(record.row, []).append(record)
            else:
                passing.append(record)
        for row, some in groups.items():
            before = states.pop(row, None)
            state, outputs = assemble_step(
                self.plan.assemble, self.row_key, None if before is None else load_row(before), some
            )
            if state is not None:
                states[row] = dump_row(state)
            passing += outputs
        return passing


def _carried(records: Iterable[Record]) -> list[Record]:
    """Through the encoding that carries records between operators."""
    return [load_record(dump_record(record)) for record in records]
