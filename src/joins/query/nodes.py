"""What a query reads, and how each row of it finds the others: the trees of a plan (`joins.query.plan`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cdc.model.schema import TableId
from cdc.model.types import Canonical, LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """The changes of one captured table: its key, and the columns that any node uses, in the table's order.

    `needs_latest`: its log may repeat or reorder events or lack before images. `defaults`: what the columns read as in
    rows of before they were added.
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

    Where the node's consumer needs a row's name and its values alone (a leaf that is found by the fragments' key, a
    root that joins nothing), the rows go there as they are and `change_detector` is None; else to a step of that
    number, which knows the former row.
    """

    fragments: tuple[int, ...]
    change_detector: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A computed value of `type`, in Spark's SQL with `{i}` for value number i of a flat list.

    `failed` is a condition: the value is NULL because computing it failed. None where that can not happen. `text` is
    what the person wrote, for messages.
    """

    sql: str
    failed: str | None
    type: LogicalType
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoin:
    """A join of a node: `columns` of it (indexes), then `constants`, are the id of a row of `child`.

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
    """A table as the query reads it: the used `columns` with their types, and what is joined to it.

    `id_columns` (indexes) identify its rows: of the root the row key, of a child its primary key in the order of the
    join. `filter`: rows that do not satisfy it are absent; it only saves work, since WHERE repeats it.
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
        """What it reads, for people: `source.database.table`, or its alias where it reads other fragments' rows."""
        return str(self.source.table_id) if isinstance(self.source, PlanSource) else self.alias

    @property
    def captured(self) -> PlanSource:
        """The captured table that it reads; AssertionError where it reads rows of other fragments."""
        assert isinstance(self.source, PlanSource)
        return self.source

    @property
    def width(self) -> int:
        """Length of the flat list of its whole rows."""
        return len(self.columns) + sum(lookup.child.width for lookup in self.lookups)

    def walk(self) -> Iterator[Node]:
        """The node and all below it, depth first, in the order of the flat list."""
        yield self
        for lookup in self.lookups:
            yield from lookup.child.walk()

    def flat_types(self) -> tuple[LogicalType, ...]:
        """Types along the flat list."""
        return tuple(type_ for node in self.walk() for type_ in node.types)


class _OfTwo:
    """Two nodes whose rows meet: the flat list is the left one's columns, then the right one's."""

    __slots__ = ()
    left: Node
    right: Node

    @property
    def alias(self) -> str:
        """What its rows are called, for people."""
        return f"{self.left.alias} and {self.right.alias}"

    @property
    def width(self) -> int:
        """Length of the flat list of its rows."""
        return self.left.width + self.right.width

    def walk(self) -> Iterator[Node]:
        """Both nodes."""
        yield self.left
        yield self.right

    def flat_types(self) -> tuple[LogicalType, ...]:
        """Types along the flat list."""
        return (*self.left.types, *self.right.types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(_OfTwo):
    """A join of many to many, in place of a tree: two nodes that join nothing, each behind its differ, meet at a key.

    `left_key` and `right_key` are columns (indexes) of theirs; NULL in one meets nothing. Its rows are pairs, named by
    the left row's name and then the right one's: the flat list is the left node's columns, then the right one's. Where
    rows of a side stay without meeting one (`left_stays`, `right_stays`), NULL stands for the other's columns and name.
    More than `most` pairs at one key are a fault that ends the query.
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
    """A join by time of two append-only tables, in place of a tree: Spark's own join of two streams with watermarks.

    Rows meet where `left_key` and `right_key` are equal and the right one's time is `earliest` to `latest` microseconds
    behind the left one's (`left_time`, `right_time`: indexes). NULL in one of these meets nothing. Its rows are named
    and read as those of a `Pair`; where `left_stays`, NULL stands for the right side of a row that meets none, told
    once the watermark says that none will come. `lateness`: milliseconds, of the left side and the right one, that a
    row may be older than the youngest of its table. What comes in for a side goes to its number, `left_number` and
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
