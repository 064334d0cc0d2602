"""A plan → the kernel's program: what each level of the tree reads and does, as JSON.

A node's height is 0 where it joins nothing, else one more than its highest child's. All hops of one height are served
by one keyed join, grouped by (hop, key); the rows of nodes with two hops or more (stars) are assembled behind it. A
leaf is read where its parent's hop is, every other node at its own height; what is meant for a level further up passes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joins.query.plan import SINK, STAR, Assemble, Hop, Node, Plan, PlanSource
from joins.steps.records import text_of

Settled = Mapping[str, Mapping[int, int]]
Floors = Mapping[str, Mapping[int, int]]
# What a program says of a level → the kernel's step that does it, in the order in which messages pass them. Spark's
# checkpoint numbers its operators in this order: a new kind goes where no query has one yet.
STEPS = {"hops": "KeyedJoin", "stars": "Assemble"}
WEEK_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What one level reads (`topics`, some through `latest`) and which `steps` it has; `program` says the rest.

    `filters`: the nodes that it reads by a condition; the program's `conditions` are theirs, in this order.
    """

    topics: tuple[str, ...]
    latest: bool
    steps: tuple[str, ...]
    program: str
    filters: tuple[Node, ...]


def program_of(
    plan: Plan,
    settled: Settled,
    *,
    kafka: Mapping[str, str] | None = None,
    ends: Settled | None = None,
    floors: Floors | None = None,
    tombstone_ms: int = WEEK_MS,
) -> tuple[Level, ...]:
    """The levels, lowest first. `settled` and `ends` as in `joins.steps.route`: topic → partition → offset; `kafka`:
    the properties of a client of the log, which markers read again (a program stands in Spark's plans: no secret is in
    it); `floors` (`joins.steps.truncation`): topic → partition → sequence. `latest` remembers deleted rows for
    `tombstone_ms`.
    """
    places = list(_walk(plan.last.root, None))
    stars = {step.of: step.number & ~STAR for step in plan.last.steps if isinstance(step, Assemble)}
    highest = max(1, _height(plan.last.root))
    log = _Log(kafka=kafka or {}, settled=settled, ends=ends or {}, floors=floors or {}, tombstone_ms=tombstone_ms)
    return tuple(_level(height, places, stars, log) for height in range(1, highest + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    kafka: Mapping[str, str]
    settled: Settled
    ends: Settled
    floors: Floors
    tombstone_ms: int


def _height(node: Node) -> int:
    return 1 + max(_height(hop.child) for hop in node.hops) if node.hops else 0


def _walk(node: Node, above: tuple[Node, Hop] | None) -> Iterator[tuple[Node, tuple[Node, Hop] | None]]:
    yield node, above
    for hop in node.hops:
        yield from _walk(hop.child, (node, hop))


def _level(
    height: int, places: Sequence[tuple[Node, tuple[Node, Hop] | None]], numbers: Mapping[str, int], log: _Log
) -> Level:
    sources: dict[str, dict[str, Any]] = {}
    filters: list[Node] = []
    hops: list[dict[str, Any]] = []
    stars: list[dict[str, Any]] = []
    for node, above in places:
        target = SINK if above is None else above[1].number
        at = _height(node) or (1 if above is None else _height(above[0]))
        if at != height:
            continue
        topic = node.captured.topic
        source = sources.setdefault(topic, _source(node.captured, log))
        source["nodes"].append({**_reader(node, target), **_condition(node, len(filters))})
        filters += [node] if node.filter is not None else []
        star = numbers.get(node.alias, -1)
        if star >= 0:
            widths, inner = [hop.child.width for hop in node.hops], [hop.inner for hop in node.hops]
            stars.append({"star": star, "of": node.alias, "widths": widths, "inner": inner, "target": target})
        for part, hop in enumerate(node.hops):
            one = {"hop": hop.number, "star": star, "part": part, "target": target}
            hops.append({**one, "inner": hop.inner, "width": hop.child.width})
    own = {"sources": list(sources.values()), "hops": hops, "stars": stars}
    program = json.dumps({"kafka": dict(log.kafka), "tombstone_ms": log.tombstone_ms, **own})
    unordered = any(source["latest"] for source in sources.values())
    return Level(
        topics=tuple(sorted(sources)),
        latest=unordered,
        steps=tuple(step for kind, step in STEPS.items() if own[kind]),
        program=program,
        filters=tuple(filters),
    )


def _source(source: PlanSource, log: _Log) -> dict[str, Any]:
    """A captured table: which values its envelopes hold, and what is known of its partitions."""
    return {
        "topic": source.topic,
        "columns": list(source.columns),
        "types": [[type_.kind, type_.precision, type_.scale] for type_ in source.types],
        "defaults": [text_of([default]).decode() for default in source.defaults],
        "ends": log.ends.get(source.topic, {}),
        "key": [source.columns.index(name) for name in source.key],
        "latest": source.needs_latest,
        "settled": log.settled.get(source.topic, {}),
        "floors": log.floors.get(source.topic, {}),
        "nodes": [],
    }


def _reader(node: Node, target: int) -> dict[str, Any]:
    """How a node reads its table."""
    numbers = [node.captured.columns.index(name) for name in node.columns]
    return {
        "columns": numbers,
        "id": [numbers[index] for index in node.id_columns],
        "hops": [hop.number for hop in node.hops],
        "keys": [[numbers[index] for index in hop.columns] for hop in node.hops],
        "target": target,
    }


def _condition(node: Node, number: int) -> dict[str, Any]:
    """Which of the program's conditions its rows must satisfy, and which of its columns that one uses."""
    if node.filter is None:
        return {"condition": -1, "uses": []}
    uses = [index for index in range(len(node.columns)) if f"{{{index}}}" in node.filter.sql]
    return {"condition": number, "uses": uses}
