"""The specification of the stateful steps: pure functions of a key's state and a batch's records.

Laws and the simulation run these; the Python engine runs them in Spark; the kernel must give the same outputs. Both
steps fold the whole batch of a key before anything leaves, and order nothing by arrival: for each row the greatest
version wins. So the outcome is the same wherever the batches are cut.

A record of `joins.records` at a hop concerns (hop, key); at the assembling step a row. An absent state is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from joins.plan import Assemble
from joins.records import DimensionSeen, FactSeen, Part, Pointed, RowGone, RowPut, Values, Version, text_of


@dataclass(slots=True, kw_only=True)
class Dimension:
    """The newest version of a dimension row; `values` None when it was deleted."""

    version: Version
    ts_ms: int
    values: Values | None


@dataclass(slots=True, kw_only=True)
class HopState:
    """Of one (hop, key): its dimension row, None before any was seen, and the live rows that point at the key.

    Each row is listed with the version that made it point here.
    """

    dimension: Dimension | None = None
    rows: dict[str, Version] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class RowState:
    """Of one live row: its values, and per hop the part that fits the key it points at (None: points at nothing)."""

    version: Version
    ts_ms: int
    values: Values
    parts: list[Part | None]


def hop_step(
    state: HopState | None, records: Iterable[Pointed | DimensionSeen], hop: int, key: str
) -> tuple[HopState | None, list[Part]]:
    """Fold a batch into a hop's key → its new state, and a part for every row that must hear of it.

    A part leaves for each row of the batch that points here now, and for all rows when the dimension changed. So a
    whole row can always be assembled in the batch that moved it, and a row that has left hears nothing more from here.
    """
    state = HopState() if state is None else state
    dimension, dimension_changed = state.dimension, False
    touched: dict[str, tuple[Version, bool]] = {}
    for record in records:
        if isinstance(record, DimensionSeen):
            if dimension is None or record.version > dimension.version:
                dimension = Dimension(version=record.version, ts_ms=record.ts_ms, values=record.values)
                dimension_changed = True
            continue
        known = touched.get(record.row)
        newest = known[0] if known is not None else state.rows.get(record.row)
        if newest is None or record.version >= newest:
            touched[record.row] = (record.version, record.live)
    rows = dict(state.rows)
    for row, (version, live) in touched.items():
        if live:
            # a row that was listed keeps its first version, so that an update that moves nothing writes no state
            rows.setdefault(row, version)
        else:
            rows.pop(row, None)
    ts_ms, values = (0, None) if dimension is None else (dimension.ts_ms, dimension.values)
    listeners = rows if dimension_changed else (row for row, (_, live) in touched.items() if live)
    parts = [Part(row, hop, key, ts_ms, values) for row in listeners]
    if not rows and values is None:
        return None, parts
    return HopState(dimension=dimension, rows=rows), parts


def assemble_step(
    plan: Assemble, row_key: tuple[int, ...], state: RowState | None, records: Iterable[FactSeen | Part]
) -> tuple[RowState | None, list[RowPut | RowGone]]:
    """Fold a batch into a row → its new state, and the whole row or its end.

    `row_key` = indexes of the key columns among the outputs. A part is taken only if its key is the one that the row's
    newest version points at: a part that a former key sends late changes nothing. Nothing leaves for a row that came
    and went within the batch.
    """
    newest: FactSeen | None = None
    parts: dict[tuple[int, str], Part] = {}
    for record in records:
        if isinstance(record, Part):
            parts[record.hop, record.key] = record
        elif newest is None or record.version >= newest.version:
            newest = record
    if newest is not None and state is not None and newest.version < state.version:
        newest = None
    before = None if state is None else _key_of(plan, row_key, state)
    if newest is not None and newest.values is None:
        return None, [] if before is None else [RowGone(before)]
    if newest is None and state is None:
        return None, []
    after = _next_state(plan, state, newest, parts)
    if newest is None and state is not None and after.parts == state.parts:
        return state, []
    outputs: list[RowPut | RowGone] = [put_of(plan, after)]
    if before is not None and before != _key_of(plan, row_key, after):
        outputs.insert(0, RowGone(before))
    return after, outputs


def _next_state(
    plan: Assemble, state: RowState | None, newest: FactSeen | None, parts: dict[tuple[int, str], Part]
) -> RowState:
    if newest is not None and newest.values is not None:
        version, ts_ms, values = newest.version, newest.ts_ms, newest.values
    else:
        assert state is not None  # a row without state and without news was dealt with by the caller
        version, ts_ms, values = state.version, state.ts_ms, state.values
    chosen: list[Part | None] = []
    for hop, index in enumerate(plan.keys):
        value = values[index]
        if value is None:
            chosen.append(None)
            continue
        key = text_of(value)
        part = parts.get((hop, key))
        if part is None and state is not None:
            kept = state.parts[hop]
            part = kept if kept is not None and kept.key == key else None
        if part is None:
            raise LookupError(f"hop {hop} sent no part for key {key}")
        chosen.append(part)
    return RowState(version=version, ts_ms=ts_ms, values=values, parts=chosen)


def put_of(plan: Assemble, state: RowState) -> RowPut:
    """The whole row that a state shows; columns of an absent dimension row are NULL."""
    values: Values = []
    for output in plan.outputs:
        if output.hop is None:
            values.append(state.values[output.index])
        else:
            part = state.parts[output.hop]
            values.append(None if part is None or part.values is None else part.values[output.index])
    newest = max([state.ts_ms, *(part.ts_ms for part in state.parts if part is not None)])
    return RowPut(values, newest)


def _key_of(plan: Assemble, row_key: tuple[int, ...], state: RowState) -> Values:
    # row key columns come from the fact (joins.sql refuses others)
    return [state.values[plan.outputs[index].index] for index in row_key]


def dump_hop(state: HopState) -> bytes:
    """A hop's state as stored; inverse of `load_hop`."""
    d = state.dimension
    return orjson.dumps((None if d is None else (d.version, d.ts_ms, d.values), state.rows))


def load_hop(stored: bytes) -> HopState:
    """Read what `dump_hop` wrote."""
    dimension, rows = orjson.loads(stored)
    return HopState(
        dimension=None
        if dimension is None
        else Dimension(version=tuple(dimension[0]), ts_ms=dimension[1], values=dimension[2]),
        rows={row: tuple(version) for row, version in rows.items()},
    )


def dump_row(state: RowState) -> bytes:
    """A row's state as stored; inverse of `load_row`."""
    parts = [None if part is None else tuple(part) for part in state.parts]
    return orjson.dumps((state.version, state.ts_ms, state.values, parts))


def load_row(stored: bytes) -> RowState:
    """Read what `dump_row` wrote."""
    version, ts_ms, values, parts = orjson.loads(stored)
    return RowState(
        version=tuple(version),
        ts_ms=ts_ms,
        values=values,
        parts=[None if part is None else Part(*part) for part in parts],
    )
