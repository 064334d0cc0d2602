"""Describe what a query reads, and how a row finds the rows joined to it: the trees of a plan (`joins.query.plan`).

A tree consists of nodes. Each node reads one table, and `Node.lookups` are its joins to other nodes. Example: in
`FROM orders o JOIN customers c ON c.id = o.customer_id`, node `o` has one lookup join to node `c`, by
`o.customer_id`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdc.model.schema import TableId
from cdc.model.types import Canonical, LogicalType

EVERY = "_every"  # the column of a constant by which all rows of two tables meet


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """One captured table that the plan reads: its Kafka topic, primary key, and the columns that any node uses.

    `shared_as` is empty if the topic contains no other table. Otherwise it is the name in the keys of the table's
    records (`naming.Routing`).

    `merged` is set for a merged table (`cdc.model.patterns`), whose topic contains the records of all its tables: the
    name of the column with their database. No record has it: its value comes from the table's name in the key.

    `columns` are in the order of the table, with `types` and `defaults`. A default is a column's value in rows older
    than the column. `needs_latest`: the topic may repeat or reorder events or lack before images, so a `latest` step
    precedes. `rereads`: capture reads rows again whose changes the topic lacks, and a marker ends that
    (`joins.steps.truncation`)."""

    table_id: TableId
    topic: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    types: tuple[LogicalType, ...]
    defaults: tuple[Canonical, ...]
    needs_latest: bool
    rereads: bool
    shared_as: str = ""
    merged: str = ""

    @property
    def name(self) -> str:
        """Return the name of the table's changes, which no other table has: that in the records' keys, or the topic."""
        return self.shared_as or self.topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Rows of earlier fragments (by number) that a node reads like a table. The columns are all values of such a
    row.

    Usually a change detector stores the previous version of each row, so that it can be retracted: `change_detector`
    is the number of that step. It is None if the reader needs only the id and the current values: a leaf that is
    looked up by the fragments' key, or a root without joins. Rows then go to the reader directly."""

    fragments: tuple[int, ...]
    change_detector: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A computed value or condition of type `type`. `{i}` in `sql` (Spark SQL) stands for value i of the joined row.

    `failed` is Spark SQL that is true where the value is NULL because computing it failed. None if that is
    impossible. `text` is the expression as written in the query, for messages."""

    sql: str
    failed: str | None
    type: LogicalType
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoin:
    """A join from a row of a node to at most one row of `child`.

    The row's values at `columns`, followed by `constants`, are the id of the wanted row. NULL in one of them matches
    nothing. `inner` is false for a LEFT JOIN. `number` identifies the step in the plan. `offset` is where the
    child's values begin in the node's joined row (its flat list, see `joins.query.plan`)."""

    number: int
    columns: tuple[int, ...]
    inner: bool
    child: Node
    offset: int
    constants: tuple[Canonical, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One table in a tree, with the columns that the query uses, and the joins to other tables (`lookups`).

    `alias` is its name in the query. `id_columns` (indexes in `columns`) identify its rows: the row key for the
    root, and for others the primary key in the order that the join uses. `filter` drops rows early to save work:
    WHERE contains the same condition again."""

    alias: str
    source: PlanSource | Derived
    columns: tuple[str, ...]
    types: tuple[LogicalType, ...]
    id_columns: tuple[int, ...]
    filter: Expression | None
    lookups: tuple[LookupJoin, ...]

    @property
    def of(self) -> str:
        """Return a name for display: `source.database.table`, or the alias for a node that reads earlier fragments."""
        return str(self.source.table_id) if isinstance(self.source, PlanSource) else self.alias

    @property
    def captured(self) -> PlanSource:
        """Return the captured table that the node reads. Raises AssertionError if it reads earlier fragments."""
        assert isinstance(self.source, PlanSource)
        return self.source

    @property
    def width(self) -> int:
        """Return the number of values of the node's joined row: its own columns and those of all nodes below it."""
        return len(self.columns) + sum(lookup.child.width for lookup in self.lookups)

    def walk(self) -> Iterator[Node]:
        """Yield the node and all nodes below it, depth first: the order of the values in the joined row."""
        yield self
        for lookup in self.lookups:
            yield from lookup.child.walk()

    def flat_types(self) -> tuple[LogicalType, ...]:
        """Return the types of all values of the joined row, in order."""
        return tuple(type_ for node in self.walk() for type_ in node.types)


class _OfTwo:
    """A join of two nodes. The values of a result row are the left node's columns, then the right node's."""

    __slots__ = ()
    left: Node
    right: Node

    @property
    def alias(self) -> str:
        """Return a name of the joined rows, for display."""
        return f"{self.left.alias} and {self.right.alias}"

    @property
    def width(self) -> int:
        """Return the number of values of a joined row."""
        return self.left.width + self.right.width

    def walk(self) -> Iterator[Node]:
        """Yield the left node, then the right node."""
        yield self.left
        yield self.right

    def flat_types(self) -> tuple[LogicalType, ...]:
        """Return the types of all values of a joined row, in order."""
        return (*self.left.types, *self.right.types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(_OfTwo):
    """A many-to-many join of two nodes. It takes the place of a tree as the root of a fragment.

    Rows match if their values at `left_key` and `right_key` (indexes of columns) are equal. NULL matches nothing.
    Each match is one result row, whose id is the left row's id, then the right row's id. A change detector precedes
    each node.

    `left_stays` keeps left rows without a match, with NULL for the right columns and id (LEFT or FULL JOIN).
    `right_stays` does the same for right rows. More than `most` matches for one key value are an error that ends the
    query. `number` is its step."""

    number: int
    left: Node
    right: Node
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    left_stays: bool
    right_stays: bool
    most: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval(_OfTwo):
    """A join by time of two append-only tables, computed by Spark's stream-stream join with watermarks.

    It takes the place of a tree as the root of a fragment. Rows match if two conditions hold:

    - The values at `left_key` and `right_key` (indexes of columns) are equal.
    - The right time is `earliest` to `latest` microseconds after the left time. `left_time` and `right_time` are
      their indexes.

    NULL in any of these matches nothing. Ids and values of result rows are as in `Pair`. With `left_stays`, a left
    row without a match is emitted with NULL for the right side, once the watermark shows that no match can come.
    `lateness` says for the left and the right table how many milliseconds a row may be older than the newest one.
    Rows of the two sides are sent to the step numbers `left_number` and `right_number`."""

    left_number: int
    right_number: int
    left: Node
    right: Node
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    left_time: int
    right_time: int
    earliest: int
    latest: int
    left_stays: bool
    lateness: tuple[int, int]


Root = Node | Pair | Interval
