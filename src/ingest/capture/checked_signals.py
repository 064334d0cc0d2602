"""Check the conditions in signals before a database runs them, because everyone who may write to Kafka can send
signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from cdc.model.errors import UsageError
from cdc.model.escapes import meanings
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.capture.observer import Observer
from ingest.capture.signals import ClosableSignals, Signal

_DIALECTS = {"mariadb": "mysql", "postgresql": "postgres", "mssql": "tsql"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSignals:
    """Signals of a source whose conditions only compare columns with constants.

    A condition must not use a column that the topology hides or masks: the rows that it selects would reveal the
    column's values. A signal with another condition is dropped, and `observer` reports the reason.
    """

    signals: ClosableSignals
    source: Source
    observer: Observer

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """Return the allowed signals from an offset (None: only new ones), and the next offset."""
        found, following = self.signals.read(start)
        allowed = []
        for signal in found:
            try:
                allowed.append(replace(signal, filters=checked_conditions(self.source, signal.filters)))
            except UsageError as error:
                self.observer.phase("signal", type=signal.type, tables=list(signal.tables), refused=str(error))
        return allowed, following

    def close(self) -> None:
        """Forget the connection."""
        self.signals.close()


def checked_conditions(source: Source, filters: Mapping[str, str]) -> Mapping[str, str]:
    """Return conditions by table (`database.table`) as they are safe to run. Raises UsageError for others."""
    if not any(filters.values()):
        return {}
    from ingest.records.conditions import condition  # slow to import, and few signals have conditions

    dialect = _dialect_of(source)
    return {
        name: condition(where, partial(_shows, source, name), dialect=dialect)
        for name, where in filters.items()
        if where
    }


def _shows(source: Source, name: str, column: str) -> bool:
    """Return whether no table that `name` can mean hides or masks a column."""
    tables = [TableId(source=source.name, database=d, table=t) for d, t in meanings(name, "") if d]
    rules = [rule for table in tables if (rule := source.rule_of(table)) is not None]
    if source.url:  # another database may look up names in any case
        rules = [replace(rule, exact_case=False) for rule in rules]
    if any(rule.ignored_columns or rule.masks for rule in rules) and column in {table.table for table in tables}:
        return False  # in PostgreSQL, a table's name stands for all columns of a row
    return not any(rule.hides(column) for rule in rules)


def _dialect_of(source: Source) -> str:
    """Return sqlglot's name of a source's SQL dialect; empty for standard SQL."""
    from sqlglot.dialects import Dialect  # slow to import

    backend = source.url.partition(":")[0].partition("+")[0] or source.type
    dialect = _DIALECTS.get(backend, backend)
    return dialect if dialect in Dialect.classes else ""
