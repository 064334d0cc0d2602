"""Translate a plan into the kernel's program: JSON that says what each level of a tree reads and does.

A node's height is 0 if it joins nothing, otherwise one more than that of its highest child. All lookup joins of one
height form a *level*: one keyed, stateful operator of Spark, whose key is (lookup join, join key). Whole rows of
nodes with several lookups (multi-way joins) are assembled after it. Leaves are read at their parent's level, other
nodes at their own height. Rows of other fragments enter at the level of the node that reads them. Messages for a
later level pass through."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cdc.model.naming import table_of
from cdc.model.patterns import merged_table
from cdc.model.types import LogicalType
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Bag, Result, Windows
from joins.query.nodes import Derived, Interval, LookupJoin, Node, Pair, PlanSource
from joins.query.plan import MULTI_JOIN, Assemble, Fragment, Plan
from joins.runtime.records import text_of
from joins.steps import route
from joins.steps.by_time import TimedSide, sides_of

SafeOffsets = Mapping[str, Mapping[int, int]]
TruncationPoints = Mapping[str, Mapping[int, int]]
# Maps the parts of a level's program to the kernel's steps, in the order in which messages pass them. Spark's
# checkpoint numbers its operators in this order: add a new kind at a position that no existing query uses.
STEPS = {"lookups": "KeyedJoin", "multi_joins": "Assemble"}
ENGINE = "jvm"  # the engine's name in records of runs; earlier versions had another one, whose state is not read
WEEK_MS = 7 * 24 * 3600 * 1000


# Steps for rows of other fragments that meet in pairs, and for rows that are grouped after the levels.
PAIRED = ("Pairs",)
GROUPED = ("ChangeDetector", "Combine", "Aggregate")
ADDED_UP = "Combine"  # before these, for exact changes
RETRACTED = ("Combine", "Aggregate")  # instead, where the joins emit what rows were
RENAMED = "Project"
TEMPORAL = "Temporal"
OTHERS = -1  # node number of a node that reads fragments' rows: they bring their own traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The input and the steps of one level. `topics` are read, some through a `latest` step; `program` has the
    details.

    - `rows`: numbers of fragments whose rows enter unchanged.
    - `reread`: numbers of fragments whose rows a node reads like changes of a table.
    - `filters`: the nodes with a filter, in the order of the program's `conditions`."""

    topics: tuple[str, ...]
    latest: bool
    steps: tuple[str, ...]
    program: str
    filters: tuple[Node, ...]
    rows: tuple[int, ...] = ()
    reread: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentProgram:
    """The program of one fragment: its levels, lowest first, and the steps after its expressions (`steps`,
    `program`).

    A join by time has two `sides` instead of levels, the left one first."""

    levels: tuple[Level, ...]
    steps: tuple[str, ...]
    program: str
    sides: tuple[Level, ...] = ()

    @property
    def readers(self) -> tuple[Level, ...]:
        """Return the levels and sides that read Kafka. Each is a separate Spark source."""
        return tuple(level for level in (*self.sides, *self.levels) if level.topics)


def program_of(
    plan: Plan,
    settled: SafeOffsets,
    *,
    kafka: Mapping[str, str] | None = None,
    ends: SafeOffsets | None = None,
    truncation_points: TruncationPoints | None = None,
    exact_from: Mapping[str, int] | None = None,
    tombstone_ms: int = WEEK_MS,
    checkpoint: str = "",
) -> tuple[FragmentProgram, ...]:
    """Return the programs of the plan's fragments, in the same order.

    - `settled`, `ends`: compaction-safe offsets, and ends of the log, by topic and partition (see
      `joins.steps.route`).
    - `kafka`: properties of the client that reads a partition again. Without secrets: Spark's plans show the program.
    - `truncation_points`: sequence by table and partition (`joins.steps.truncation`).
    - `exact_from`: by table, as in `QueryRecord`.
    - `tombstone_ms`: how long a `latest` step remembers deleted rows.
    - `checkpoint`: the folder from which a join by time reads its batch's watermark, and a condition on the time its
      clock."""
    log = _Log(
        kafka=kafka or {}, settled=settled, ends=ends or {}, truncation_points=truncation_points or {},
        exact_from=exact_from or {}, tombstone_ms=tombstone_ms, checkpoint=checkpoint,
    )  # fmt: skip
    return tuple(_part(fragment, plan.first_node(fragment), plan.sink.table, log) for fragment in plan.fragments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    kafka: Mapping[str, str]
    settled: SafeOffsets
    ends: SafeOffsets
    truncation_points: TruncationPoints
    exact_from: Mapping[str, int]
    tombstone_ms: int
    checkpoint: str


def _part(fragment: Fragment, first: int, table: str, log: _Log) -> FragmentProgram:
    retracts = route.retracts(fragment, log.exact_from)
    steps: tuple[str, ...] = RETRACTED if retracts else GROUPED if fragment.group else ()
    steps = (ADDED_UP, *steps) if fragment.adds_up else steps
    if fragment.picks is not None or fragment.tag is not None:
        steps = (RENAMED,)
    if fragment.temporal is not None:
        steps = (*steps, TEMPORAL)
    return FragmentProgram(
        levels=_levels(fragment, first, table, log),
        steps=steps,
        program=json.dumps(_grouped(fragment, table) if fragment.group else _renamed(fragment, log)),
        sides=_sides(fragment, first, log),
    )


def _sides(fragment: Fragment, first: int, log: _Log) -> tuple[Level, ...]:
    return tuple(_side(side, first + side.number, log) for side in sides_of([fragment]))


def _side(side: TimedSide, number: int, log: _Log) -> Level:
    """Return the program of one side of a join by time."""
    node, source, other = side.node, side.source, side.other
    numbers = [source.columns.index(name) for name in node.columns]
    program = {
        "checkpoint": log.checkpoint,
        "source": _source(source, log),
        "node": {**_reader(node, number, numbers, side.target), **_condition(node, 0)},
        "key": [numbers[index] for index in side.key],
        "time": numbers[side.time],
        "alone": {
            "stays": side.stays, "side": side.number, "target": side.outlet, "names": len(other.id_columns),
            "values": other.width,
        },
    }  # fmt: skip
    return Level(
        topics=(source.topic,),
        latest=False,
        steps=(),
        program=json.dumps(program),
        filters=(node,) if node.filter is not None else (),
    )


def _levels(fragment: Fragment, first: int, table: str, log: _Log) -> tuple[Level, ...]:
    if isinstance(fragment.root, Interval):
        return ()
    if isinstance(fragment.root, Pair):
        return (_pairs(fragment.root, fragment.outlet, table),)
    highest = max(1, _height(fragment.root))
    return tuple(_level(height, fragment, first, log) for height in range(1, highest + 1))


def _height(node: Node) -> int:
    return 1 + max(_height(lookup.child) for lookup in node.lookups) if node.lookups else 0


def _walk(node: Node, above: tuple[Node, LookupJoin] | None) -> Iterator[tuple[Node, tuple[Node, LookupJoin] | None]]:
    yield node, above
    for lookup in node.lookups:
        yield from _walk(lookup.child, (node, lookup))


def _level(height: int, fragment: Fragment, first: int, log: _Log) -> Level:
    made = _Made()
    numbers = {step.of: step.number & ~MULTI_JOIN for step in fragment.steps if isinstance(step, Assemble)}
    for number, (node, above) in enumerate(_walk(fragment.tree, None), start=first):
        target = fragment.outlet if above is None else above[1].number
        at = _height(node) or (1 if above is None else _height(above[0]))
        if at != height:
            continue
        retracts = {"retracts": True} if above is None and route.retracts(fragment, log.exact_from) else {}
        placed = route.places_in(node) if retracts and route.moves_in(fragment) else []
        made.read(node, number, target, log, adds_up=fragment.adds_up, placed=placed)
        multi_join = numbers.get(node.alias, -1)
        if multi_join >= 0:
            widths, inner = [lookup.child.width for lookup in node.lookups], [lookup.inner for lookup in node.lookups]
            one = {"multi_join": multi_join, "of": node.alias, "widths": widths, "inner": inner, "target": target}
            made.multi_joins.append({**one, **retracts})
        for part, lookup in enumerate(node.lookups):
            one = {"lookup": lookup.number, "multi_join": multi_join, "part": part, "target": target}
            made.lookups.append({**one, "inner": lookup.inner, "width": lookup.child.width, **retracts})
    return made.level(log)


def _pairs(pair: Pair, target: int, table: str) -> Level:
    """Return the level of a many-to-many join: a change detector for each side, and the step where rows meet."""
    sides = [
        {
            "pair": pair.number, "side": number, "target": target, "stays": stays,
            "id": list(node.id_columns), "key": list(key),
            "names": len(other.id_columns), "values": other.width,
        }
        for number, (node, other, key, stays) in enumerate([
            (pair.left, pair.right, pair.left_key, pair.left_stays),
            (pair.right, pair.left, pair.right_key, pair.right_stays),
        ])
    ]  # fmt: skip
    sources = [node.source for node in pair.walk() if isinstance(node.source, Derived)]
    detectors = [
        {"change_detector": source.change_detector, "side": side} for source, side in zip(sources, sides, strict=True)
    ]
    pairs = {"number": pair.number, "target": target, "most": pair.most, "table": table, "of": pair.alias}
    return Level(
        topics=(),
        latest=False,
        steps=PAIRED,
        program=json.dumps({"change_detectors": detectors, "pairs": {**pairs, "sides": sides}}),
        filters=(),
        reread=tuple(number for source in sources for number in source.fragments),
    )


class _Made:
    """Collects the parts of one level while the nodes are visited."""

    def __init__(self) -> None:
        self.sources: dict[str, dict[str, Any]] = {}
        self.filters: list[Node] = []
        self.lookups: list[dict[str, Any]] = []
        self.multi_joins: list[dict[str, Any]] = []
        self.detectors: list[dict[str, Any]] = []
        self.rows: list[int] = []
        self.reread: list[int] = []

    def read(self, node: Node, number: int, target: int, log: _Log, *, adds_up: bool, placed: list[str]) -> None:
        """Add the source of a node, whose index in the plan is `number`. Its rows go to `target`, a group if `adds_up`
        (`Fragment.adds_up`). With `placed`, every record must be read (`joins.steps.route.moving`)."""
        condition = _condition(node, len(self.filters))
        self.filters += [node] if node.filter is not None else []
        if isinstance(node.source, PlanSource):
            source = self.sources.setdefault(node.source.name, _source(node.source, log))
            numbers = [node.source.columns.index(name) for name in node.columns]
            source["nodes"].append({**_reader(node, number, numbers, target, adds_up=adds_up), **condition})
            if adds_up:
                source["exact_from"] = log.exact_from.get(node.source.name, 1)
            if placed:
                source["placed"] = sorted({*source.get("placed", ()), *map(node.source.columns.index, placed)})
        elif node.source.change_detector is None:
            assert node.filter is None, "a node whose rows come in as they are has no filter"
            self.rows += node.source.fragments
        else:
            reader = {**_reader(node, OTHERS, list(range(len(node.columns))), target), **condition}
            self.detectors.append({"change_detector": node.source.change_detector, "node": reader})
            self.reread += node.source.fragments

    def level(self, log: _Log) -> Level:
        """Return the level with all parts."""
        own: dict[str, Any] = {
            "sources": list(self.sources.values()),
            "lookups": self.lookups,
            "multi_joins": self.multi_joins,
        }
        if self.detectors:
            own["change_detectors"] = self.detectors
        program = json.dumps({"kafka": dict(log.kafka), "tombstone_ms": log.tombstone_ms, **own})
        unordered = any(source["latest"] for source in self.sources.values())
        return Level(
            topics=tuple(sorted({source["topic"] for source in self.sources.values()})),
            latest=unordered,
            steps=tuple(step for kind, step in STEPS.items() if own[kind]),
            program=program,
            filters=tuple(self.filters),
            rows=tuple(self.rows),
            reread=tuple(self.reread),
        )


def _source(source: PlanSource, log: _Log) -> dict[str, Any]:
    """Return the program's description of a captured table: columns of its envelopes, and offsets of its partitions."""
    return {
        "topic": source.topic,
        **({"shared_as": source.shared_as} if source.shared_as else {}),
        **({"merged": source.columns.index(source.merged)} if source.merged else {}),
        "columns": list(source.columns),
        "types": [_type(type_) for type_ in source.types],
        "defaults": [text_of([default]).decode() for default in source.defaults],
        "ends": log.ends.get(source.topic, {}),
        "key": [source.columns.index(name) for name in source.key],
        "latest": source.needs_latest,
        "compaction_safe": log.settled.get(source.topic, {}),
        "truncation_points": _truncation_points(source, log),
        "nodes": [],
    }


def _truncation_points(source: PlanSource, log: _Log) -> dict[str, int]:
    """Return the sequences by partition; for a merged table by `<partition> <name of the table>`."""
    if not source.merged:
        return {str(partition): sequence for partition, sequence in log.truncation_points.get(source.name, {}).items()}
    merged = merged_table(source.table_id, "")
    assert merged is not None  # its database is a pattern
    found: dict[str, int] = {}
    for name, points in log.truncation_points.items():
        table = table_of(name.split(".", 1)[0], name)
        if table is not None and merged.covers(table):
            found |= {f"{partition} {name}": sequence for partition, sequence in points.items()}
    return found


def _type(type_: LogicalType) -> list[Any]:
    return [type_.kind, type_.precision, type_.scale]


def _reader(node: Node, number: int, numbers: list[int], target: int, *, adds_up: bool = False) -> dict[str, Any]:
    """Return the program's description of how a node reads rows. `numbers` are the indexes of its columns in them."""
    return {
        "number": number,
        "columns": numbers,
        "id": [numbers[index] for index in node.id_columns],
        "lookups": [lookup.number for lookup in node.lookups],
        "keys": [[numbers[index] for index in lookup.columns] for lookup in node.lookups],
        "constants": [text_of(list(lookup.constants)).decode() for lookup in node.lookups],
        "target": target,
        **({"adds_up": True} if adds_up else {}),
    }


def _condition(node: Node, number: int) -> dict[str, Any]:
    """Return the program's description of a node's filter: its index among the conditions, and its columns."""
    if node.filter is None:
        return {"condition": -1, "uses": []}
    uses = [index for index in range(len(node.columns)) if f"{{{index}}}" in node.filter.sql]
    return {"condition": number, "uses": uses}


def _grouped(fragment: Fragment, table: str) -> dict[str, Any]:
    """Return the program's description of how a fragment's rows are grouped."""
    group = fragment.group
    assert group is not None
    described = {
        "number": group.number,
        "target": fragment.target,
        "table": table,
        "keys": list(group.keys),
        "key_types": [_type(type_) for type_ in group.key_types],
        "arguments": list(group.arguments),
        "totals": [{"argument": total.argument, "type": _type(total.type)} for total in group.totals],
        "bags": [_bag(bag) for bag in group.bags],
        "results": [_result(result) for result in group.results],
        "always": group.always,
        "top": None if group.top is None else asdict(group.top),
        "windows": None if group.windows is None else _windows(group.windows),
    }
    return {"change_detectors": [{"change_detector": group.change_detector, "group": described}], "conditions": []}


def _windows(windows: Windows) -> dict[str, Any]:
    """Describe the functions over a group's ordered rows."""
    return {
        **asdict(windows),
        "totals": [{"argument": total.argument, "type": _type(total.type)} for total in windows.totals],
        "bags": [_bag(bag) for bag in windows.bags],
        "results": [_result(result) for result in windows.results],
    }


def _result(result: Result) -> dict[str, Any]:
    """Describe an aggregate function: the kernel takes all but its computation from the registry."""
    row = BY_NAME[result.function]
    own = {"of": result.of, "type": _type(result.type), "text": result.text, "given": list(result.given)}
    return {"finish": row.finish, "reads": row.reads, "keeps": row.keeps, **own}


def _bag(bag: Bag) -> dict[str, Any]:
    types = [_type(type_) for type_ in bag.types]
    return {
        "arguments": list(bag.arguments), "types": types, "needed": bag.needed, "descending": list(bag.descending)
    }  # fmt: skip


def _renamed(fragment: Fragment, log: _Log) -> dict[str, Any]:
    """Return the program's description of the values that a fragment's rows keep, of the tag before their ids, and of
    their conditions on the time."""
    picks = None if fragment.picks is None else list(fragment.picks)
    described = {"target": fragment.target, "picks": picks, "tag": fragment.tag}
    if fragment.temporal is None:
        return described
    bounds = [asdict(bound) for bound in fragment.temporal.bounds]
    return {**described, "temporal": {"target": fragment.target, "bounds": bounds, "checkpoint": log.checkpoint}}
