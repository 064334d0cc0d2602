"""Describe what a query reads, and how each row finds the others: the trees of a plan (`joins.query.plan`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdc.model.schema import TableId
from cdc.model.types import Canonical, LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """The changes of one captured table: its key, and the columns that any node uses, in the table's order.

    `needs_latest`: its log may repeat or reorder events, or lack before images. `defaults`: the columns' values in rows
    older than the columns.
    """

    table_id: TableId
    topic: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    types: tuple[LogicalType, ...]
    defaults: tuple[Canonical, ...]
    needs_latest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """The rows of earlier fragments as a node reads them; its columns are all values of such a row, in order.

    If the node's consumer needs only a row's id and values (a leaf that is found by the fragments' key, a root that
    joins
    nothing), the rows go there directly and `change_detector` is None. Otherwise they go to the change detector with
    that number, which knows the former row.
    """

    fragments: tuple[int, ...]
    change_detector: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A computed value of `type`, in Spark SQL with `{i}` for value number i of a flat list.

    `failed` is the condition that the value is NULL because computing it failed; None if that is impossible. `text` is
    the original expression, for messages.
    """

    sql: str
    failed: str | None
    type: LogicalType
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoin:
    """A lookup join of a node: its `columns` (indexes), then `constants`, are the id of a row of `child`.

    NULL in a column matches nothing. `number` is unique in the plan. The child's values begin at `offset` of the node's
    flat list.
    """

    number: int
    columns: tuple[int, ...]
    inner: bool
    child: Node
    offset: int
    constants: tuple[Canonical, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A table as the query reads it: the used `columns` with their types, and the tables joined to it.

    `id_columns` (indexes) identify its rows: for the root the row key, for a child its primary key in the order of the
    join. Rows that do not satisfy `filter` are absent; this only saves work, since WHERE repeats it.
    """

    alias: str
    source: PlanSource | Derived
    columns: tuple[str, ...]
    types: tuple[LogicalType, ...]
    id_columns: tuple[int, ...]
    filter: Expression | None
    lookups: tuple[LookupJoin, ...]

    @property
    def of(self) -> str:
        """A display name: `source.database.table`, or the alias if it reads other fragments' rows."""
        return str(self.source.table_id) if isinstance(self.source, PlanSource) else self.alias

    @property
    def captured(self) -> PlanSource:
        """The captured table that it reads; AssertionError if it reads rows of other fragments."""
        assert isinstance(self.source, PlanSource)
        return self.source

    @property
    def width(self) -> int:
        """The length of the flat list of its whole rows."""
        return len(self.columns) + sum(lookup.child.width for lookup in self.lookups)

    def walk(self) -> Iterator[Node]:
        """Yield the node and all below it, depth first, in the order of the flat list."""
        yield self
        for lookup in self.lookups:
            yield from lookup.child.walk()

    def flat_types(self) -> tuple[LogicalType, ...]:
        """Return the types along the flat list."""
        return tuple(type_ for node in self.walk() for type_ in node.types)


class _OfTwo:
    """Two nodes whose rows meet: the flat list is the left one's columns, then the right one's."""

    __slots__ = ()
    left: Node
    right: Node

    @property
    def alias(self) -> str:
        """A display name of its rows."""
        return f"{self.left.alias} and {self.right.alias}"

    @property
    def width(self) -> int:
        """The length of the flat list of its rows."""
        return self.left.width + self.right.width

    def walk(self) -> Iterator[Node]:
        """Yield both nodes."""
        yield self.left
        yield self.right

    def flat_types(self) -> tuple[LogicalType, ...]:
        """Return the types along the flat list."""
        return (*self.left.types, *self.right.types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(_OfTwo):
    """A many-to-many join in place of a tree: two nodes, each after its change detector, meet at a key.

    `left_key` and `right_key` are indexes of the nodes' columns; NULL in one matches nothing. A result row is a pair,
    whose id is the left row's id and then the right one's. The flat list is the left node's columns, then the right
    one's. If a side keeps rows without a partner (`left_stays`, `right_stays`), NULL replaces the other side's columns
    and id. More than `most` pairs at one key are an error that ends the query.
    """

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
    """A join by time of two append-only tables in place of a tree: Spark's own join of two streams with watermarks.

    Rows match if `left_key` and `right_key` are equal and the right one's time is `earliest` to `latest` microseconds
    after the left one's (`left_time`, `right_time`: indexes). NULL in one of these matches nothing. Ids and values of
    result rows are as in `Pair`. With `left_stays`, a left row without a match is emitted with NULL for the right side,
    once the watermark shows that no match can come. `lateness`: milliseconds, for the left and the right side, by which
    a row may be older than the newest of its table. Input for a side goes to its number, `left_number` or
    `right_number`.
    """

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
