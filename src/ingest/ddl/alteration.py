"""Collect the actions of one ALTER TABLE, and apply them together to a table's definition.

Column names in actions refer to the table before the statement, so columns may swap names. `AFTER x` refers to new
names, in the order of the statement. Source: `mysql_prepare_alter_table` of both servers, and the servers' results in
the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ingest.ddl.catalog import ColumnDefinition, Key, TableDefinition, TableName, with_keys_applied
from ingest.ddl.column_types import converted
from ingest.ddl.columns import ColumnWords, period
from ingest.ddl.defaults import converted_initial
from ingest.ddl.dialect import Dialect
from ingest.ddl.elements import named
from ingest.ddl.errors import DdlNotUnderstood

Place = str | None  # "": FIRST; a name: AFTER that column; None: where it was, or last


@dataclass(slots=True, kw_only=True)
class _Step:
    """New definition of one column. `old` is its previous name in lower case; None for an added column.

    `place` is FIRST or AFTER. `lenient`: the action has IF [NOT] EXISTS.
    """

    old: str | None
    column: ColumnWords
    place: Place
    lenient: bool


@dataclass(slots=True, kw_only=True)
class Alteration:
    """Actions of one ALTER TABLE, collected while parsing. Names for look-ups only are in lower case."""

    steps: list[_Step] = field(default_factory=list)
    drops: dict[str, bool] = field(default_factory=dict)
    renames: dict[str, tuple[str, bool]] = field(default_factory=dict)
    defaults: dict[str, tuple[str, bool]] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    dropped_keys: set[str] = field(default_factory=set)
    renamed_keys: dict[str, str] = field(default_factory=dict)
    charset: str | None = None
    collation: str | None = None
    convert_to: str | None = None
    converts: bool = False
    rename_to: TableName | None = None
    engine: str = ""
    versioned: bool | None = None
    required: set[str] = field(default_factory=set)

    def add(self, column: ColumnWords, place: Place, *, if_not_exists: bool) -> None:
        """Add the action ADD COLUMN."""
        self.steps.append(_Step(old=None, column=column, place=place, lenient=if_not_exists))
        self.keys.extend(column.keys)

    def change(self, old: str, column: ColumnWords, place: Place, *, if_exists: bool) -> None:
        """Add the action MODIFY COLUMN or CHANGE COLUMN."""
        self.steps.append(_Step(old=old.lower(), column=column, place=place, lenient=if_exists))
        self.keys.extend(column.keys)

    def drop(self, name: str, *, if_exists: bool) -> None:
        """Add the action DROP COLUMN."""
        self.drops[name.lower()] = if_exists

    def rename_column(self, old: str, new: str, *, if_exists: bool) -> None:
        """Add the action RENAME COLUMN."""
        self.renames[old.lower()] = (new, if_exists)

    def redefine(self, name: str, default: str, *, if_exists: bool) -> None:
        """Add the action ALTER COLUMN … SET DEFAULT or DROP DEFAULT."""
        self.defaults[name.lower()] = (default, if_exists)

    def applied(self, table: TableDefinition, dialect: Dialect) -> TableDefinition:
        """Return the table's definition after the statement. Raises DdlNotUnderstood if the statement does not fit the
        table."""
        if self.converts and self.convert_to is None:
            raise DdlNotUnderstood("the database's default character set is not known")
        charset = self.charset or table.charset
        collation = self.collation if self.charset else table.collation
        existing = {column.name.lower() for column in table.columns}
        steps = self._fitting(existing)
        changes = {step.old: step for step in steps if step.old is not None}
        columns: list[ColumnDefinition] = []
        names: dict[str, str | None] = {}  # old name in lower case → new name, None for a dropped column
        for column in table.columns:
            low = column.name.lower()
            if low in self.drops:
                names[low] = None
            elif step := changes.get(low):
                names[low] = step.column.name
                if step.place is None:
                    columns.append(moved(column, self._new(step.column, charset, collation, dialect)))
            else:
                names[low] = new = self.renames[low][0] if low in self.renames else column.name
                columns.append(self._kept(column, new, dialect))
        for step in steps:
            if step.old is None or step.place is not None:
                made = self._new(step.column, charset, collation, dialect)
                old = table.column(step.old) if step.old is not None else None
                self._put(columns, moved(old, made) if old else made, step.place)
        columns = [replace(c, nullable=False) if c.name.lower() in self.required else c for c in columns]
        if len({column.name.lower() for column in columns}) != len(columns):
            raise DdlNotUnderstood("two columns would have the same name")
        if not columns:
            raise DdlNotUnderstood("no column would be left")
        keys = self._keys(table, names, self.keys)
        versioned = (table.versioned is not None) if self.versioned is None else self.versioned
        return with_keys_applied(
            replace(
                table, columns=tuple(columns), keys=keys, charset=charset, collation=collation,
                engine=self.engine or table.engine, versioned=period(columns) if versioned else None,
            )
        )  # fmt: skip

    def origins(self, table: TableDefinition) -> dict[str, str]:
        """Map the new name of each existing column to its old name, both in lower case. Added columns are absent."""
        steps = self._fitting({column.name.lower() for column in table.columns})
        changes = {step.old: step.column.name.lower() for step in steps if step.old is not None}
        found: dict[str, str] = {}
        for column in table.columns:
            low = column.name.lower()
            if low not in self.drops:
                kept = self.renames[low][0].lower() if low in self.renames else low
                found[changes.get(low, kept)] = low
        return found

    def _fitting(self, existing: set[str]) -> list[_Step]:
        """Return the steps to apply, without those that IF [NOT] EXISTS skips. Raises DdlNotUnderstood for unknown
        names."""
        wanted = {
            **self.drops,
            **{name: lenient for name, (_, lenient) in self.renames.items()},
            **{name: lenient for name, (_, lenient) in self.defaults.items()},
        }
        missing = [name for name, lenient in wanted.items() if name not in existing and not lenient]
        missing += [step.old for step in self.steps if step.old and step.old not in existing and not step.lenient]
        if missing:
            raise DdlNotUnderstood(f"the table is not known to have a column {missing[0]}")
        steps: list[_Step] = []
        added: set[str] = set()
        for step in self.steps:
            low = step.column.name.lower()
            if step.old is None and step.lenient and low in (existing - set(self.drops)) | added:
                continue
            if step.old is not None and step.old not in existing:
                continue
            if step.old is None:
                added.add(low)
            steps.append(step)
        return steps

    def _new(
        self, column: ColumnWords, charset: str | None, collation: str | None, dialect: Dialect
    ) -> ColumnDefinition:
        return column.definition(charset, collation, dialect, self.convert_to)

    def _kept(self, column: ColumnDefinition, name: str, dialect: Dialect) -> ColumnDefinition:
        if self.convert_to:
            column_type, charset = converted(column.column_type, column.charset, self.convert_to, dialect)
            collation = None if charset is None else self.collation
            column = moved(column, replace(column, column_type=column_type, charset=charset, collation=collation))
        low = column.name.lower()
        if low in self.defaults:
            column = replace(column, default=self.defaults[low][0])
        return replace(column, name=name)

    @staticmethod
    def _put(columns: list[ColumnDefinition], column: ColumnDefinition, place: Place) -> None:
        if place is None:
            columns.append(column)
        elif place == "":
            columns.insert(0, column)
        else:
            low = place.lower()
            index = next((i for i, c in enumerate(columns) if c.name.lower() == low), None)
            if index is None:
                raise DdlNotUnderstood(f"the table is not known to have a column {place}")
            columns.insert(index + 1, column)

    def _keys(self, table: TableDefinition, names: dict[str, str | None], added: list[Key]) -> tuple[Key, ...]:
        keys: list[Key] = []
        for key in table.keys:
            low = key.name.lower()
            if low in self.dropped_keys:
                continue
            parts = [names.get(part.lower(), part) for part in key.columns]
            left = tuple(part for part in parts if part is not None)
            if left:
                keys.append(replace(key, name=self.renamed_keys.get(low, key.name), columns=left))
        if any(key.kind == "primary" for key in keys) and any(key.kind == "primary" for key in added):
            raise DdlNotUnderstood("the table would have two primary keys")
        return named([*keys, *added])


def moved(old: ColumnDefinition, new: ColumnDefinition) -> ColumnDefinition:
    """Return `new` with the value that the column has in rows older than it: that of `old`, converted to the new
    type."""
    if not old.initial_known:
        return replace(new, initial=None, initial_known=False)
    initial, known = converted_initial(old.initial, old.column_type, new.column_type, nullable=new.nullable)
    return replace(new, initial=initial, initial_known=known)
