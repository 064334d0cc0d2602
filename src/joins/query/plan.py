"""Describe what a query does as a short list of frozen steps: data only, sent to every worker.

The query is a tree. Its root is the table whose rows are the result's rows. Each join leads from a row to the one row
of
another table that has the key (`LookupJoin`). Whole rows are built from the leaves to the root. So every foreign key is
read directly from its table's changes, and changes of the root pass no step of a deeper join:

    PlanSource the changes of one captured table, through `latest` if needed
    Node       a table's used columns and its lookup joins
    KeyedJoin  a lookup join: rows that point at a key meet the row that has it. A node with one lookup emits whole rows
    Assemble   a node with several lookups (a multi-way join): rows meet their parts, and whole rows are emitted
    Finish     expressions over whole rows, and WHERE
    Sink       the columns and key under which rows are stored

The values of a whole row form one flat list: a node's columns, then the flat list of each lookup's child, in order.

A query that does not fit one tree has several fragments (`Fragment`). A node may read the rows of an earlier fragment
(`Derived`) like a table, and the rows of a fragment may be grouped (`joins.query.group`). Steps have numbers that are
unique in the plan and name their targets; the last fragment's rows go to the sink.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from cdc.model import naming
from cdc.model.types import LogicalType
from cdc.stored.layout import Layout, LayoutColumn
from joins.query.group import Grouping
from joins.query.nodes import Derived, Expression, Interval, Node, Pair, PlanSource, Root

STATE_FORMAT = 5  # of the state in `joins.steps.state`; a checkpoint of another format is refused
SINK = 0xFF
MULTI_JOIN = 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedJoin:
    """The stateful step of one lookup join.

    `stage` orders the steps: a step receives messages only from lower stages, and the steps of one stage share an
    operator. Whole rows go to `target` (a lookup's number or `SINK`). If `star` is set, parts number `part` go to that
    assembling step instead. `of`: alias of the node with the lookup; `right`: alias of the joined node. `width`: length
    of the right side's flat list.
    """

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
    """The stateful step of a node with several lookups; `number` = 0x80 + a count, `inner` and `widths` per lookup."""

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

    `members`: it is a SET, whose text lists its members. `nullable`: it may be NULL although it is part of the row key.
    """

    name: str
    type: LogicalType
    index: int
    origin: str
    members: bool = False
    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The expressions over whole rows: `computed` values are appended, and rows where `where` is not true are dropped.

    `types` along the flat list without the computed values.
    """

    types: tuple[LogicalType, ...]
    computed: tuple[Expression, ...]
    where: Expression | None
    outputs: tuple[Output, ...]

    @property
    def plain(self) -> bool:
        """True if there is nothing to compute."""
        return not self.computed and self.where is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The joined table that rows go to."""

    topology: str
    table: str
    row_key: tuple[str, ...]
    family: str
    salt_buckets: int

    @property
    def hbase_table(self) -> str:
        """Its name in HBase."""
        return naming.hbase_table(self.topology, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A tree, the expressions over its whole rows, and their grouping; `number` is its index in the plan.

    Its rows go to `target`: the sink, the lookup join whose right side they are, or the change detector of the node or
    group that reads them. Their values are as `finish` leaves them (the flat list, then the computed values), or only
    the `picks` of those; grouped rows are as `Grouping` says. `tag` precedes their ids if another fragment's rows go to
    the same target.
    """

    number: int
    root: Root
    steps: tuple[Step, ...]
    finish: Finish
    group: Grouping | None
    target: int
    picks: tuple[int, ...] | None = None
    tag: str | None = None

    @property
    def tree(self) -> Node:
        """The tree's root; AssertionError if the root is no tree."""
        assert isinstance(self.root, Node)
        return self.root

    @property
    def outlet(self) -> int:
        """The target of the tree's whole rows."""
        return self.target if self.group is None else self.group.change_detector


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one query: its fragments, each before the one that reads it; the last one's rows go to the sink."""

    fragments: tuple[Fragment, ...]
    sources: tuple[PlanSource, ...]
    sink: Sink

    @property
    def last(self) -> Fragment:
        """The fragment whose rows are the result; it groups nothing."""
        return self.fragments[-1]

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The result's columns."""
        return self.last.finish.outputs

    @property
    def folds(self) -> bool:
        """True if steps have folded all of a batch's messages before they reach the sink."""
        return self._folds(self.last)

    def _folds(self, fragment: Fragment) -> bool:
        if fragment.steps or fragment.group is not None or not isinstance(fragment.root, Node):
            return True
        source = fragment.root.source
        return isinstance(source, Derived) and all(self._folds(self.fragments[number]) for number in source.fragments)

    def reader(self, fragment: Fragment) -> Fragment:
        """Return the fragment that reads the rows of one that is not the last."""
        return next(
            one
            for one in self.fragments
            for node in one.root.walk()
            if isinstance(node.source, Derived) and fragment.number in node.source.fragments
        )

    @property
    def by_time(self) -> bool:
        """True if it joins by time, so that batches have a watermark."""
        return any(isinstance(fragment.root, Interval) for fragment in self.fragments)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to read, each once, sorted."""
        return tuple(sorted(source.topic for source in self.sources))

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, fragment by fragment, depth first."""
        return tuple(node for fragment in self.fragments for node in fragment.root.walk())

    def first_node(self, fragment: Fragment) -> int:
        """Return the index of a fragment's first node among all; traces identify nodes by it (`cdc.stored.traces`)."""
        return sum(1 for one in self.fragments[: fragment.number] for _ in one.root.walk())

    def layout(self, layout_id: int) -> Layout:
        """Return the layout of the rows that the plan writes, under an id."""
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
        """The columns of the row key that may be NULL, in the key's order."""
        nullable = {output.name for output in self.outputs if output.nullable}
        return tuple(name for name in self.sink.row_key if name in nullable)

    def fingerprint(self) -> str:
        """Return a digest of everything that the state and the stored rows depend on.

        A checkpoint with another fingerprint cannot be continued. The digest excludes aliases, comments, the case of
        keywords, the direction of a join's equality, and texts for messages (`text`, `origin`).
        """
        root, finish = self.last.root, self.last.finish
        below = [
            [_nameless(fragment.root), _meant(fragment.finish), _grouped(fragment.group), fragment.picks, fragment.tag]
            for fragment in self.fragments[:-1]
        ]
        # a nullable key is encoded differently: a resumed run would not find the rows that it has written
        nullable = {"nullable_key": self.nullable_key} if self.nullable_key else {}
        sink = {**asdict(self.sink), **nullable}
        named = [STATE_FORMAT, _nameless(root), _meant(finish), sink, *([below] if below else [])]
        text = json.dumps(named, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


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
        source = (str(node.source.table_id), node.source.key, node.source.needs_latest)
    else:
        source = node.source.fragments
    return [source, node.columns, [str(t) for t in node.types], node.id_columns, expression, lookups]


def _grouped(group: Grouping | None) -> object:
    if group is None:
        return None
    results = [[result.function, result.of, str(result.type)] for result in group.results]
    kept = asdict(group)
    top = [] if group.top is None else [kept["top"]]  # omitted if None, so that older plans keep their fingerprint
    return [kept["keys"], kept["arguments"], kept["totals"], kept["bags"], results, group.always, *top]


def _meant(finish: Finish) -> object:
    expressions = [None if e is None else [e.sql, e.failed, str(e.type)] for e in (*finish.computed, finish.where)]
    outputs = [[output.name, str(output.type), output.index] for output in finish.outputs]
    return [[str(type_) for type_ in finish.types], expressions, outputs]


def steps_of(root: Node, outlet: int, stars: Iterator[int]) -> tuple[Step, ...]:
    """Return the stateful steps of a tree in the order of their stages; a lookup's step has the lookup's number.

    Whole rows go to `outlet`; `stars` yields the numbers of assembling steps.
    """
    steps: list[Step] = []

    def visit(node: Node, target: int) -> int:
        """Add the steps that build a node's whole rows; return the stage after which they are complete (0: at once)."""
        star = next(stars) if len(node.lookups) > 1 else None
        stage = 0
        for part, lookup in enumerate(node.lookups):
            own = visit(lookup.child, lookup.number) + 1
            steps.append(
                KeyedJoin(
                    number=lookup.number,
                    stage=own,
                    of=node.alias,
                    right=lookup.child.alias,
                    inner=lookup.inner,
                    width=lookup.child.width,
                    target=target,
                    star=star,
                    part=part,
                )
            )
            stage = max(stage, own)
        if star is None:
            return stage
        steps.append(
            Assemble(
                number=star,
                stage=stage + 1,
                of=node.alias,
                inner=tuple(lookup.inner for lookup in node.lookups),
                widths=tuple(lookup.child.width for lookup in node.lookups),
                target=target,
            )
        )
        return stage + 1

    visit(root, outlet)
    return tuple(sorted(steps, key=lambda step: step.stage))
