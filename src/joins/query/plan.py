"""Describe what a query does, as frozen data that is sent to every worker.

**Tree.** A query is a tree of tables. The root is the table with one row per result row. Each lookup join leads from
a row to the one row of another table that has the key. Example: `FROM orders o JOIN customers c ON c.id =
o.customer_id JOIN countries n ON n.id = c.country_id` is the tree `o → c → n`.

**Whole row.** A row of a node together with the rows joined to it. Steps build whole rows from the leaves to the
root: first `c` with `n`, then `o` with both. So a change of an order passes only the step of `o`.

**Flat list.** The values of a whole row in one list: a node's columns, then the flat list of each joined node, in
order. Expressions refer to a value by its index in this list.

    PlanSource  the changes of one captured table, after the `latest` step if needed
    Node        the used columns of a table, and its lookup joins
    KeyedJoin   step of one lookup join: rows with a foreign key meet the row that has the key
    Assemble    step of a node with several lookups: collects the parts of a whole row
    Finish      expressions over whole rows, and WHERE
    Sink        the joined table in HBase: columns and row key

**Fragment.** One tree with its expressions and an optional GROUP BY (`Fragment`). A query that does not fit one tree
has several, such as a join with a grouped subquery. A node may read the rows of earlier fragments (`Derived`) like a
table. The rows of the last fragment go to the sink.

**Step numbers.** Steps have numbers that are unique in the plan. A row is sent to the number of its next step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from cdc.model import naming
from cdc.model.types import LogicalType
from cdc.stored.layout import Layout, LayoutColumn
from joins.query.group import Grouping, Temporal
from joins.query.nodes import Derived, Expression, Interval, Node, Pair, PlanSource, Root

STATE_FORMATS = 5, 6  # of the state in `joins.steps.state`: without and with `Fragment.retracts`; it reads both
SINK = 0xFF
MULTI_JOIN = 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedJoin:
    """The stateful step of one lookup join. It keeps rows with a foreign key, and the joined row, by key.

    - `stage` orders the steps: a step receives rows only from lower stages. Steps of one stage share an operator.
    - `of` and `right` are the aliases of the node that looks up, and of the joined node.
    - `width` is the number of values of the joined side.
    - `target` is where whole rows go: the number of a lookup's step, or `SINK`.
    - `star`, if set, is the number of an `Assemble` step. It receives the joined side instead, as part number
      `part`."""

    number: int
    stage: int
    of: str
    right: str
    inner: bool
    width: int
    target: int
    star: int | None
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assemble:
    """The stateful step that collects the parts of a whole row, for a node with several lookups.

    `number` is 0x80 or greater. `inner` and `widths` have an entry per lookup: whether the join is inner, and the
    number of values of the joined side. For `stage`, `of` and `target` see `KeyedJoin`."""

    number: int
    stage: int
    of: str
    inner: tuple[bool, ...]
    widths: tuple[int, ...]
    target: int


Step = KeyedJoin | Assemble


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One column of the result: value number `index` of the flat list followed by the computed values.

    `origin` names the source column or the expression, for display. `members`: the column is a MySQL SET, whose text
    lists its members. `nullable`: the column is a part of the row key and may be NULL."""

    name: str
    type: LogicalType
    index: int
    origin: str
    members: bool = False
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The expressions over whole rows of a fragment: `computed` values are appended, then `where` filters.

    `types` are the types of the flat list, without the computed values. `outputs` are the columns of the result."""

    types: tuple[LogicalType, ...]
    computed: tuple[Expression, ...]
    where: Expression | None
    outputs: tuple[Output, ...]

    @property
    def plain(self) -> bool:
        """Return whether there is nothing to compute and nothing to filter."""
        return not self.computed and self.where is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The joined table in HBase that the rows of the result go to: its row key, column family and number of salt
    buckets."""

    topology: str
    table: str
    row_key: tuple[str, ...]
    family: str
    salt_buckets: int

    @property
    def hbase_table(self) -> str:
        """Return the table's name in HBase."""
        return naming.hbase_table(self.topology, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """One tree, the expressions over its whole rows, and an optional grouping. `number` is its index in the plan.

    - `target`: the step that receives its rows: the sink, a lookup join, or the change detector of the reading node
      or group.
    - `picks`: the indexes of the values that its rows contain. None means all: the flat list and the computed values
      (see the module). `Grouping` describes the rows of a grouped fragment.
    - `tag`: put before the row ids if several fragments have the same target, as the branches of a UNION ALL do.
    - `temporal`: its rows pass this step last.
    - `detects`: its group has a change detector in any case (`Plan.in_format`)."""

    number: int
    root: Root
    steps: tuple[Step, ...]
    finish: Finish
    group: Grouping | None
    target: int
    picks: tuple[int, ...] | None = None
    tag: str | None = None
    temporal: Temporal | None = None
    detects: bool = False

    @property
    def tree(self) -> Node:
        """Return the root node of the tree. Raises AssertionError if the fragment is a `Pair` or `Interval`."""
        assert isinstance(self.root, Node)
        return self.root

    @property
    def adds_up(self) -> bool:
        """Return whether its group adds up exact changes of a table (`cdc.model.event.SourceInfo.exact`). They pass no
        change detector, and so no row is stored."""
        root = self.root
        return (
            self.group is not None
            and self.temporal is None
            and isinstance(root, Node)
            and not root.lookups
            and isinstance(root.source, PlanSource)
            and not root.source.needs_latest
            and not root.source.merged  # of thousands of tables, some phase ends all the time
        )

    @property
    def retracts(self) -> bool:
        """Return whether the last step of its joins can emit what a changed row was, so that its group needs no change
        detector. A lookup join cannot if rows move to other keys without a record or marker: `PlanSource.rereads`. An
        assembling step and a step `latest` have one entry per row."""
        root = self.root
        if self.detects or self.group is None or self.temporal is not None:
            return False
        if not isinstance(root, Node) or not root.lookups:
            return False
        source = root.source
        return len(root.lookups) > 1 or isinstance(source, Derived) or source.needs_latest or source.rereads

    @property
    def outlet(self) -> int:
        """Return the step that receives whole rows: the one of the grouping or of `temporal`, or else `target`."""
        if self.temporal is not None:
            return self.temporal.number
        return self.target if self.group is None else self.group.change_detector


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one query. Each fragment precedes its reader. The rows of the last fragment go to the sink."""

    fragments: tuple[Fragment, ...]
    sources: tuple[PlanSource, ...]
    sink: Sink

    @property
    def last(self) -> Fragment:
        """Return the last fragment, whose rows are the result. It has no grouping."""
        return self.fragments[-1]

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Return the columns of the result."""
        return self.last.finish.outputs

    @property
    def folds(self) -> bool:
        """Return whether stateful steps merge the changes of each row, so that the sink gets one per row and batch."""
        return self._folds(self.last)

    def _folds(self, fragment: Fragment) -> bool:
        if fragment.steps or fragment.group is not None or fragment.temporal is not None:
            return True
        if not isinstance(fragment.root, Node):
            return True
        source = fragment.root.source
        return isinstance(source, Derived) and all(self._folds(self.fragments[number]) for number in source.fragments)

    def reader(self, fragment: Fragment) -> Fragment:
        """Return the fragment that reads the rows of `fragment`, which must not be the last one."""
        return next(
            one
            for one in self.fragments
            for node in one.root.walk()
            if isinstance(node.source, Derived) and fragment.number in node.source.fragments
        )

    @property
    def by_time(self) -> bool:
        """Return whether the plan has a join by time, which needs watermarks."""
        return any(isinstance(fragment.root, Interval) for fragment in self.fragments)

    @property
    def by_clock(self) -> bool:
        """Return whether rows of the result come and go with the time, so that batches must run without changes."""
        return any(fragment.temporal is not None for fragment in self.fragments)

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the Kafka topics to read, each once, sorted."""
        return tuple(sorted({source.topic for source in self.sources}))

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, fragment by fragment, depth first."""
        return tuple(node for fragment in self.fragments for node in fragment.root.walk())

    def first_node(self, fragment: Fragment) -> int:
        """Return the index of a fragment's first node in `nodes`. Traces identify nodes by that index
        (`cdc.stored.traces`)."""
        return sum(1 for one in self.fragments[: fragment.number] for _ in one.root.walk())

    def layout(self, layout_id: int) -> Layout:
        """Return the layout (columns, types, HBase qualifiers) of the rows that the plan writes, with this id."""
        columns = tuple(
            LayoutColumn(name=o.name, type=o.type, origin=o.origin, members=o.members) for o in self.outputs
        )
        sink = self.sink
        return Layout(
            topology=sink.topology,
            table=sink.table,
            id=layout_id,
            family=sink.family,
            columns=columns,
            row_key=sink.row_key,
            salt_buckets=sink.salt_buckets,
            nullable_key=self.nullable_key,
        )

    @property
    def nullable_key(self) -> tuple[str, ...]:
        """Return the columns of the row key that may be NULL, in the order of the key."""
        nullable = {output.name for output in self.outputs if output.nullable}
        return tuple(name for name in self.sink.row_key if name in nullable)

    def fingerprint(self) -> str:
        """Return a digest of everything that the checkpointed state and the stored rows depend on.

        A checkpoint with another fingerprint cannot be continued. The digest ignores aliases, comments, the case of
        keywords, the sides of an equality, and texts for messages (`text`, `origin`)."""
        root, finish = self.last.root, self.last.finish
        below = [
            [_nameless(one.root), _meant(one.finish), _grouped(one.group), one.picks, one.tag, *_bounded(one.temporal)]
            + ["retracts"] * one.retracts  # its steps and their state are others than in version 0.2
            for one in self.fragments[:-1]
        ]
        # a nullable key is encoded differently: a resumed run would not find the rows that it has written
        sink = {**asdict(self.sink), **({"nullable_key": self.nullable_key} if self.nullable_key else {})}
        named = [self.state_format, _nameless(root), _meant(finish), sink, *([below] if below else [])]
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def state_format(self) -> int:
        """Return the format of its state (`STATE_FORMATS`)."""
        return STATE_FORMATS[any(fragment.retracts for fragment in self.fragments)]

    def in_format(self, stored: int | None) -> Plan:
        """Return the plan that continues a state of the given format. None, or an unknown one: the plan itself."""
        if stored != STATE_FORMATS[0]:
            return self
        return replace(self, fragments=tuple(replace(fragment, detects=True) for fragment in self.fragments))


def _nameless(node: Root) -> object:
    if isinstance(node, Interval):  # the allowed lateness is not part of it: a change applies from the next batch on
        sides = [_nameless(node.left), _nameless(node.right)]
        meets = [node.left_key, node.right_key, node.left_time, node.right_time, node.earliest, node.latest]
        return [*sides, *meets, node.left_stays]
    if isinstance(node, Pair):
        sides = [_nameless(node.left), _nameless(node.right)]
        return [*sides, node.left_key, node.right_key, node.left_stays, node.right_stays]
    expression = None if node.filter is None else node.filter.sql
    lookups = [
        # constants only if there are any, so that plans of earlier versions keep their fingerprint
        (lookup.columns, lookup.inner, _nameless(lookup.child), *([lookup.constants] if lookup.constants else []))
        for lookup in node.lookups
    ]
    source: object
    if isinstance(node.source, PlanSource):
        # the topic only if it contains other tables, so that plans of earlier versions keep their fingerprint
        shared = [node.source.topic] if node.source.shared_as else []
        source = (str(node.source.table_id), node.source.key, node.source.needs_latest, *shared)
    else:
        source = node.source.fragments
    return [source, node.columns, [str(t) for t in node.types], node.id_columns, expression, lookups]


def _grouped(group: Grouping | None) -> object:
    if group is None:
        return None
    # literals of a call only if there are any, so that older plans keep their fingerprint
    results = [[r.function, r.of, str(r.type), *([r.given] if r.given else [])] for r in group.results]
    kept = asdict(group)
    top = [] if group.top is None else [kept["top"]]  # omitted if None, so that older plans keep their fingerprint
    windows = [] if group.windows is None else [_windowed(kept["windows"])]
    return [kept["keys"], kept["arguments"], kept["totals"], kept["bags"], results, group.always, *top, *windows]


def _bounded(temporal: Temporal | None) -> list[object]:
    """Return the conditions on the time, without their texts. Nothing if there are none, as in older plans."""
    bounds = () if temporal is None else temporal.bounds
    return [[b.value, b.operator, b.unit, b.before, b.months, b.after] for b in bounds]


def _windowed(kept: dict[str, Any]) -> object:
    """Return what the state and the rows of window functions depend on: everything but texts for messages."""
    texts = [{name: value for name, value in one.items() if name != "text"} for one in kept["functions"]]
    results = [{k: v for k, v in one.items() if k != "text" and (v or k != "given")} for one in kept["results"]]
    return {**kept, "functions": texts, "results": results}


def _meant(finish: Finish) -> object:
    expressions = [None if e is None else [e.sql, e.failed, str(e.type)] for e in (*finish.computed, finish.where)]
    outputs = [[output.name, str(output.type), output.index] for output in finish.outputs]
    return [[str(type_) for type_ in finish.types], expressions, outputs]


def steps_of(root: Node, outlet: int, stars: Iterator[int]) -> tuple[Step, ...]:
    """Return the stateful steps of a tree, ordered by stage. The step of a lookup join has the join's number.

    `outlet` is the number of the step that receives the whole rows. `stars` yields unused numbers for `Assemble`
    steps."""
    steps: list[Step] = []

    def visit(node: Node, target: int) -> int:
        """Add the steps below a node. Return the stage after which its whole rows are complete (0 without lookups)."""
        star = next(stars) if len(node.lookups) > 1 else None
        stage = 0
        for part, lookup in enumerate(node.lookups):
            own = visit(lookup.child, lookup.number) + 1
            steps.append(
                KeyedJoin(
                    number=lookup.number, stage=own, of=node.alias, right=lookup.child.alias, inner=lookup.inner,
                    width=lookup.child.width, target=target, star=star, part=part,
                )
            )  # fmt: skip
            stage = max(stage, own)
        if star is None:
            return stage
        steps.append(
            Assemble(
                number=star, stage=stage + 1, of=node.alias, target=target,
                inner=tuple(lookup.inner for lookup in node.lookups),
                widths=tuple(lookup.child.width for lookup in node.lookups),
            )
        )  # fmt: skip
        return stage + 1

    visit(root, outlet)
    return tuple(sorted(steps, key=lambda step: step.stage))
