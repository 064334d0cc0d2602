"""Filters of a source: tables and columns that are not captured, and masks for values. Capture applies them first.

The policy is the default for tables without an own rule. `drop` captures only the listed tables. `accept` captures
every table of the source's databases, except for tables listed without options. A table listed with ignored columns
loses only those columns; an empty list of them keeps the table whole.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc.model.identifiers import fold_identifier
from cdc.model.schema import TableId

FilterPolicy = Literal["accept", "drop"]
# Actions for a value that its column's type in the envelope cannot represent (docs/adr, `unrepresentable`).
Unrepresentable = Literal["null", "text", "dead_letter"]
_PRIMARY_KEY = "_rowid"  # MySQL's second name for the column of an integer key, which may be hidden
_MASK = re.compile(r"sha256\((.+)\)|truncate\((\d+)\)|redact", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """Options of one table: ignored columns, masks by column, a condition for snapshots.

    `only_columns`: if it is not None, no other column is captured, not even one that is added later.
    `message_key_columns` are the columns of the record key, in place of the primary key. `append_only`: the application
    only inserts rows. A row arrives at most `watermark` seconds later than others with similar times (joins by time,
    docs/queries.md). Capture ignores both. Column names match in any case, as in MySQL: `Mail` hides `mail`. With
    `exact_case` they match exactly (PostgreSQL); with `hides_any_case`, too, except for `ignored_columns` and `masks`.
    With `by_name`, rows are decoded only if the log names their columns.
    `database_column` names the column with the database, if the table is a merged one (`cdc.model.patterns`).
    `keeps_table`: an empty list of ignored columns is given, which keeps the whole table under the policy `accept`.
    """

    ignored_columns: tuple[str, ...] = ()
    only_columns: tuple[str, ...] | None = None
    masks: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    message_key_columns: tuple[str, ...] = ()
    append_only: bool = False
    watermark: float = 0.0
    exact_case: bool = False
    hides_any_case: bool = False
    by_name: bool = False
    keeps_table: bool = False
    database_column: str = ""

    @property
    def empty(self) -> bool:
        """Return whether the table is only listed, so that the policy `accept` does not capture it."""
        options = self.ignored_columns or self.masks or self.where or self.message_key_columns or self.append_only
        return not options and self.only_columns is None and not self.keeps_table

    def leaves_out(self, column: str) -> bool:
        """Return whether a column of the table is not captured."""
        same, name = self._same, self._same(column)
        if self.only_columns is not None and name not in map(same, self.only_columns):
            return True
        if name == _PRIMARY_KEY and not self.exact_case and (self.ignored_columns or self.masks):
            return True
        hidden = self._same_hidden
        return hidden(column) in map(hidden, self.ignored_columns)

    def hides(self, column: str) -> bool:
        """Return whether a column of the table is not captured, or masked."""
        return self.leaves_out(column) or self.mask_of(column) is not None

    def mask_of(self, column: str) -> str | None:
        """Return the mask of a column; None if it is not masked."""
        same, name = self._same_hidden, self._same_hidden(column)
        return next((text for masked, text in self.masks.items() if same(masked) == name), None)

    @property
    def _same(self) -> Callable[[str], str]:
        """Return the function that normalizes a column name: equal results mean the same column."""
        return str if self.exact_case else fold_identifier

    @property
    def _same_hidden(self) -> Callable[[str], str]:
        """Return the same for names of columns to ignore or mask."""
        return fold_identifier if self.hides_any_case else self._same


def is_captured(
    policy: FilterPolicy, rules: Mapping[TableId, TableRule], databases: frozenset[str], t: TableId
) -> bool:
    """Return whether a table's rows are captured, by the policy and the rules of its source.

    `rules` are those of the listed tables, `databases` the databases of the source.
    """
    rule = rules.get(t)
    if policy == "drop":
        return rule is not None
    return t.database in databases and (rule is None or not rule.empty)


def mask(text: str) -> Callable[[object], object]:
    """Return the masking function for `sha256(salt)`, `truncate(n)` or `redact`. Raises ValueError for any other text.

    The function takes a canonical value that is not NULL, and returns a string: the hash in hexadecimal, the first n
    characters, or `***`.
    """
    match = _MASK.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is none of sha256(salt), truncate(n), redact")
    if match[1] is not None:
        salt = match[1].encode()
        return lambda value: hashlib.sha256(salt + str(value).encode()).hexdigest()
    if match[2] is not None:
        length = int(match[2])
        return lambda value: str(value)[:length]
    return lambda value: "***"


class Shape:
    """Function that changes a row in place: it removes the ignored columns of one table and masks others."""

    def __init__(self, rule: TableRule) -> None:
        self._rule = rule
        self._known, self._hidden = set[str](), list[str]()
        self._masked: list[tuple[str, Callable[[object], object]]] = []

    def __call__(self, row: dict[str, Any]) -> None:
        """Apply the rule to one row."""
        if (
            not row.keys() <= self._known
        ):  # most rows of a table have the same column names: each name is looked up once
            for name in row.keys() - self._known:
                self._known.add(name)
                text = self._rule.mask_of(name)
                if self._rule.leaves_out(name):
                    self._hidden.append(name)
                elif text is not None:
                    self._masked.append((name, mask(text)))
        for name in self._hidden:
            row.pop(name, None)
        for name, to in self._masked:
            if row.get(name) is not None:
                row[name] = to(row[name])

    def masks(self, column: str) -> bool:
        """Return whether the column is masked."""
        return self._rule.mask_of(column) is not None


def shape_of(rule: TableRule) -> Shape | None:
    """Return the function that applies a rule to a row in place; None if the rule neither hides nor masks a column."""
    if not rule.ignored_columns and not rule.masks and rule.only_columns is None:
        return None
    return Shape(rule)
