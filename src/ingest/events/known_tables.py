"""The tables of a source at its current log position, and which of them are captured."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace

from cdc.model.escapes import meanings
from cdc.model.identifiers import fold_identifier
from cdc.model.patterns import MergedTable
from cdc.model.schema import TableId
from ingest.binlog.reading.effects import TableEffect, effects
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect
from ingest.events.log_events import StatementLogged

_WORD, _QUOTE = re.compile(r"[\w$]+"), re.compile('[`"]')


class KnownTables(ABC):
    """The tables that a source's server has at the current log position, by the names in its log.

    `captured(database, table)` applies the topology's filters.
    """

    def __init__(
        self, source: str, databases: Iterable[str], captured: Callable[[str, str], bool], dialect: Dialect,
        default_charset: str | None, merged: Iterable[MergedTable] = (),
    ) -> None:  # fmt: skip
        self.source, self._captured, self._dialect, self._default_charset = source, captured, dialect, default_charset
        self.databases = frozenset(fold_identifier(database) for database in databases)
        # words of statements that may concern a merged table: its tables' name, or a whole database
        names = {fold_identifier(one.table_id.table) for one in merged}
        self._merged_words = (*sorted(names), "database", "schema") if names else ()
        # database names that are not plain words appear in quotes; quotes in them are doubled
        odd = [name for name in self.databases if not _WORD.fullmatch(name)]
        self._quoted = frozenset(name for name in odd if not _QUOTE.search(name))
        self._doubled = [name.replace(q, 2 * q) for name in odd if _QUOTE.search(name) for q in '`"']
        self._catalog = Catalog(default_charset=default_charset)
        self.postponed = frozenset[tuple[str, str]]()  # not captured before a snapshot reads them, see `log_scan`

    @property
    def catalog(self) -> Catalog:
        """Return the server's tables at the current position."""
        return self._catalog

    @catalog.setter
    def catalog(self, catalog: Catalog) -> None:
        before, self._catalog = self._catalog, catalog
        self._catalog_changed(before)

    @abstractmethod
    def _catalog_changed(self, before: Catalog) -> None:
        """Update what depends on the catalog; it was `before`."""

    def captured(self, database: str, table: str) -> bool:
        """Return whether a table is captured. Names are as in the log, a statement or the topology."""
        return (name := self._dialect.table_name(database, table)) not in self.postponed and self._captured(*name)

    def exists(self, table: TableId) -> bool:
        """Return whether a table exists at the current position, even if its columns are not known."""
        name = (table.database, table.table)
        return name in self.catalog.tables or name in self.catalog.unknown

    def named(self, name: str) -> TableId:
        """Return the table that `database.table` means in signals and checkpoints.

        Names may contain dots: the split that names a captured table is chosen, otherwise that at the first dot.
        """
        whole, *splits = meanings(name, "")
        splits = splits or [whole]
        return self.id_of(next((split for split in splits if self.captured(*split)), splits[0]))

    def id_of(self, name: tuple[str, str]) -> TableId:
        """Return a table's id from its database and name, as the log, a statement or the topology writes them."""
        database, table = self._dialect.table_name(*name)
        return TableId(source=self.source, database=database, table=table)

    def effects(self, event: StatementLogged) -> list[TableEffect]:
        """Return a statement's effects on whole tables, with names as the server stores them."""
        name = self._dialect.table_name
        found: list[TableEffect] = []
        for effect in effects(event.database, event.sql):
            (database, table), to = name(effect.database, effect.table), effect.to and name(*effect.to)
            found.append(replace(effect, database=database, table=table, to=to))
        return found

    def concerns(self, database: str, sql: str) -> bool:
        """Return whether a statement may affect a database with captured tables. It may return True for others."""
        low = fold_identifier(sql[:100_000])
        return (
            fold_identifier(database) in self.databases
            or any(word in self.databases for word in _WORD.findall(low))
            or not self._quoted.isdisjoint(_QUOTE.split(low) if self._quoted else ())
            or any(name in low for name in self._doubled)
            or any(word in low for word in self._merged_words)
        )
