"""Apply a policy to sources that are no log of a database: polled tables, topics, syslog and MaxScale.

Each of them could reveal hidden columns in its own way: a gateway could name another topic or format, poll by a hidden
column, or write its name in another form that the server accepts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.model.brokers import Brokers
from cdc.model.errors import UsageError
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from cdc.topology.topology import Listen, Mirror, Source, TopicForm

# sqlglot's dialects of conditions, by the scheme of a SQLAlchemy URL
_DIALECTS: Mapping[str, str] = {
    "mssql": "tsql", "sqlite": "sqlite", "postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql",
    "oracle": "oracle",
}  # fmt: skip
_REGULAR = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics of a Kafka connection: cluster, format of the records, and the topic of each (database, table)."""

    brokers: Brokers
    form: TopicForm
    names: Mapping[tuple[str, str], str]

    @property
    def shared(self) -> frozenset[str]:
        """Return the topics of more than one table."""
        return frozenset(topic for topic, count in Counter(self.names.values()).items() if count > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a connection that is no database server with a login. At most one field is set.

    `url` is a SQLAlchemy URL, `listen` are the addresses for syslog, `topics` those of Kafka. `repr` omits `url`, which
    may contain a password.
    """

    url: str = field(default="", repr=False)
    listen: Listen | None = None
    topics: Topics | None = None

    @property
    def dialect(self) -> str:
        """Return the dialect of a SQLAlchemy URL: its scheme without the driver."""
        return self.url.partition(":")[0].partition("+")[0]

    def condition_dialect(self, table: TableId) -> str:
        """Return the SQL dialect (sqlglot's name) of conditions. Raises UsageError if there is none."""
        found = _DIALECTS.get(self.dialect)
        if found is None:
            what = f"table {table.database}.{table.table}: conditions in the SQL of {self.dialect} cannot be checked"
            raise UsageError(what, "read the table without a condition")
        return found

    def fields(self, source: Source) -> dict[str, Any]:
        """Return the fields of a source that belong to the endpoint. `source` is a configuration from a gateway."""
        mirror = None
        if self.topics is not None and source.mirror is not None:
            topics = {table: self.topics.names[table.database, table.table] for table in source.tables}
            mirror = replace(
                source.mirror, brokers=self.topics.brokers, form=self.topics.form, topics=topics,
                shared=self.topics.shared,
            )  # fmt: skip
        return {"url": self.url, "listen": self.listen, "mirror": mirror}

    def described(self) -> dict[str, Any]:
        """Return the same fields for a source without tables, for queries of the catalog."""
        if self.topics is None:
            return {"url": self.url, "listen": self.listen}
        return {"mirror": Mirror(brokers=self.topics.brokers, form=self.topics.form, topics={})}


NO_ENDPOINT = Endpoint()


def check_polled(source: Source, *, dumps: bool) -> None:
    """Raise UsageError if the policy forbids to poll a source, or hides the column by which it would be polled.

    `source` has the policy's rules. The checkpoint contains values of that column, and a poll sees whole tables.
    """
    poll = source.poll
    if poll is None:
        return
    if not dumps:
        raise UsageError("tables may not be read by polling", "the owner of the host allows it by `dumps: true`")
    for table in source.tables:
        rule = source.rules.get(table, TableRule())
        if rule.hides(poll.cursor):
            what = f"table {table.database}.{table.table} cannot be polled by {poll.cursor}"
            raise UsageError(what, "its values may not leave: use a column that the policy neither hides nor masks")


def is_plain_name(column: str, rule: TableRule) -> bool:
    """Return whether no other column that the policy hides can be meant by a name.

    A database that SQLAlchemy supports may ignore accents, widths or trailing spaces in names. So where a table hides
    columns, only names in plain letters are compared.
    """
    hidden = (*rule.ignored_columns, *rule.masks, *(rule.only_columns or ()))
    return not hidden or all(_REGULAR.fullmatch(name) for name in (column, *hidden))
