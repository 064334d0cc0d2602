"""Track foreign keys that change rows without events in the log: ON UPDATE or ON DELETE with CASCADE or SET NULL.

InnoDB executes these actions itself, so the log contains the parent's change but not those of its child rows. From the
foreign keys and the parent's change follows which child rows may have changed. A foreign key that no longer exists
costs only a search without results.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cdc.model.schema import TableId
from ingest.events.log_events import RefusedImage, RowsLogged

CHANGING = ("CASCADE", "SET NULL")


class ForeignKey(NamedTuple):
    """One foreign key: `columns` of table `child` reference the columns `referenced` of table `parent`.

    `on_delete` and `on_update` are its actions, such as `CASCADE`.
    """

    child: TableId
    columns: tuple[str, ...]
    parent: TableId
    referenced: tuple[str, ...]
    on_delete: str
    on_update: str

    @property
    def silent(self) -> bool:
        """Return whether the foreign key changes child rows. Other ones only reject changes of the parent."""
        return self.on_delete in CHANGING or self.on_update in CHANGING


class ChangedChildren(NamedTuple):
    """Child rows that a parent's change has changed: before it, their `columns` had the values `old` (as in JSON).

    `new` are the values after it; None if the rows were deleted, or the columns set to NULL.
    """

    columns: tuple[str, ...]
    old: tuple[Any, ...]
    new: tuple[Any, ...] | None

    def to_json(self) -> list[Any]:
        """Return the entry of a checkpoint's state; inverse of `changed_children_from`."""
        return [self.columns, self.old, self.new]


def changed_children_from(stored: list[Any]) -> ChangedChildren:
    """Decode `ChangedChildren` from an entry of a checkpoint's state."""
    columns, old, new = stored
    return ChangedChildren(tuple(columns), tuple(old), None if new is None else tuple(new))


class ForeignKeys:
    """All foreign keys of a source that change child rows, including those between tables that are not captured."""

    def __init__(self, found: Iterable[ForeignKey] = ()) -> None:
        self.known = frozenset(each for each in found if each.silent)
        self.by_parent: dict[TableId, list[ForeignKey]] = {}
        for each in sorted(self.known, key=str):
            self.by_parent.setdefault(each.parent, []).append(each)

    def to_json(self) -> list[Any]:
        """Encode the foreign keys for a checkpoint's state."""
        return [
            [*_named(r.child), r.columns, *_named(r.parent), r.referenced, r.on_delete, r.on_update]
            for r in sorted(self.known, key=str)
        ]

    def below(self, tables: Iterable[TableId]) -> list[TableId]:
        """Return these tables and all tables to which a change of their rows may cascade."""
        found, waiting = list[TableId](), list(tables)
        while waiting:
            table = waiting.pop(0)
            if table not in found:
                found.append(table)
                waiting += [each.child for each in self.by_parent.get(table, ())]
        return found

    def affected(
        self, table: TableId, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> Iterator[tuple[TableId, ChangedChildren]]:
        """Yield the child rows that one changed row of a parent table affects, with their table.

        `before` None is an insert, `after` None a delete. Values that are missing or NULL reference no rows.
        """
        for each in self.by_parent.get(table, ()):
            if before is None or not all(name in before for name in each.referenced):
                continue
            old = tuple(before[name] for name in each.referenced)
            if None in old:
                continue
            if after is None:
                if each.on_delete in CHANGING:
                    yield each.child, ChangedChildren(each.columns, old, None)
            elif each.on_update in CHANGING:
                new = tuple(after.get(name, value) for name, value in zip(each.referenced, old, strict=True))
                if new != old:
                    values = new if each.on_update == "CASCADE" else None
                    yield each.child, ChangedChildren(each.columns, old, values)

    def followed(self, event: RowsLogged) -> Iterator[tuple[TableId, ChangedChildren]]:
        """Yield the child rows that all changed rows of an event affect, with their table."""
        if event.operation == "insert":
            return
        for change in event.rows:
            before, after = change if event.operation == "update" else (change, None)
            yield from self.affected(event.table, _values(before), None if after is None else _values(after))

    def unsure(self, table: TableId, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether an update sets columns that children reference, but its image lacks their old values."""
        hidden = set(after) - set(before)
        return any(hidden & set(each.referenced) for each in self.by_parent.get(table, ()))


def foreign_keys_from(stored: Iterable[list[Any]], source: str) -> ForeignKeys:
    """Decode foreign keys from a checkpoint's state."""
    return ForeignKeys(
        ForeignKey(
            TableId(source=source, database=entry[0], table=entry[1]), tuple(entry[2]),
            TableId(source=source, database=entry[3], table=entry[4]), tuple(entry[5]), entry[6], entry[7],
        )
        for entry in stored
    )  # fmt: skip


def alike(value: Any) -> Any:
    """Return a common form of all values that a server may treat as equal: without case, accents and trailing
    blanks."""
    if not isinstance(value, str):
        return value
    plain = "".join(c for c in unicodedata.normalize("NFKD", value) if not unicodedata.combining(c))
    return plain.casefold().rstrip()


def _named(table: TableId) -> tuple[str, str]:
    return table.database, table.table


def _values(image: Any) -> Mapping[str, Any]:
    return image.values if isinstance(image, RefusedImage) else image
