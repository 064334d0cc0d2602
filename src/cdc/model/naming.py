"""Names of topics, tables, collections and peers on which several stages must agree, all derived from the topology's
name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from cdc.model.escapes import bounded, escaped, unescaped
from cdc.model.patterns import MergedTable, merged_named, merged_of
from cdc.model.schema import TableId

# Key of a change topic's truncate markers: a JSON text. Keys of rows are JSON objects.
TRUNCATE_KEY = b'"truncate"'
TopicRouting = Literal["per_table", "per_database", "per_source"]
# In a topic of several tables, each record's key is an object whose first field names the record's table. Debezium's
# `ByLogicalTableRouter` writes the same field.
_NAMED = b'{"__dbz__physicalTableIdentifier":"'
_LONGEST = 249  # characters of a topic's name
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{_LONGEST}}}")


def change_topic(topology: str, table: TableId) -> str:
    """Return the topic of a source table's changes: `topology.source.database.table`, database and table escaped.

    Names of letters, digits, `_` and `-` stay as they are (`cdc.model.escapes`). No two tables have the same topic.
    A topic name longer than 249 characters is cut and ends with a hash. `table_of` is the inverse for all other topics.
    """
    return bounded(f"{topology}.{escaped_table(table)}", _LONGEST, of=str(table))


def escaped_table(table: TableId) -> str:
    """Return `source.database.table`, with database and table escaped so that neither contains a dot. The length is
    unlimited."""
    return f"{table.source}.{escaped(table.database)}.{escaped(table.table)}"


def file_name(table: TableId) -> str:
    """Return `source.database.table` as a file name without extension, escaped and shortened like a topic name."""
    return bounded(escaped_table(table), _LONGEST, of=str(table))


def exported_topic(prefix: str, table: TableId) -> str:
    """Return the topic of an export: `prefix.database.table`, escaped as in change topics."""
    return bounded(f"{prefix}.{escaped(table.database)}.{escaped(table.table)}", _LONGEST, of=str(table))


def table_of(topology: str, topic: str) -> TableId | None:
    """Return the table whose changes a topic contains; inverse of `change_topic`.

    Returns None for every other topic, and for topics whose name `change_topic` shortened.
    """
    parts = topic.removeprefix(f"{topology}.").split(".")
    if not topic.startswith(f"{topology}.") or len(parts) != 3:
        return None
    try:
        table = TableId(source=parts[0], database=unescaped(parts[1]), table=unescaped(parts[2]))
    except ValueError:
        return None
    return table if change_topic(topology, table) == topic else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The topics in Kafka to which the changes of tables are written.

    Everywhere else a table's changes have the name of its `change_topic`, and its records the keys of a topic of its
    own. Only the code that reads and writes Kafka translates these names and keys, with this class.

    - `per_table`: each table has its own topic, `change_topic`.
    - `per_database`: the tables of a database share `topology.source.database`.
    - `per_source`: the tables of a source share `topology.source.all_tables`.
    - The tables of a merged table (`merged`) share the merged table's `change_topic`, whatever `topics` is.

    A table whose `change_topic` had to be shortened within its database's name keeps a topic of its own.
    """

    topology: str
    topics: TopicRouting = "per_table"
    merged: tuple[MergedTable, ...] = ()
    _known: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)  # results of `topic`

    @property
    def shares_any(self) -> bool:
        """Return whether any topic may contain several tables."""
        return self.topics != "per_table" or bool(self.merged)

    def topic_of(self, table: TableId) -> str:
        """Return the topic in Kafka that contains a table's changes."""
        return self.topic(change_topic(self.topology, table))

    def topic(self, name: str) -> str:
        """Return the topic in Kafka of a table, by its `change_topic`. Any other topic is returned as it is."""
        if not self.shares_any:
            return name
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = _routed(self, name)
        return found

    def shares(self, name: str) -> bool:
        """Return whether the records of `name` are in a topic of several tables."""
        return self.topic(name) != name

    def stored_key(self, name: str, key: bytes) -> bytes:
        """Return the key that a record of `name` has in Kafka. A truncate marker's key has the table's name only."""
        if not self.shares(name):
            return key
        begin = _NAMED + name.encode() + b'"'
        return begin + b"}" if key == TRUNCATE_KEY else begin + b"," + key[1:]

    def own_key(self, name: str, key: bytes) -> bytes | None:
        """Return a record's key without the table's name; inverse of `stored_key`. None if it is another table's."""
        if not self.shares(name):
            return key
        begin = _NAMED + name.encode() + b'"'
        if not key.startswith(begin):
            return None
        return TRUNCATE_KEY if key[len(begin) :] == b"}" else b"{" + key[len(begin) + 1 :]


def table_named(key: bytes | None) -> str:
    """Return the `change_topic` in the key of a record in a topic of several tables. Empty if it contains none."""
    if key is None or not key.startswith(_NAMED):
        return ""
    return key[len(_NAMED) : key.find(b'"', len(_NAMED))].decode("ascii", "replace")


def database_named(key: bytes | None) -> str:
    """Return the database of the table that the key of a record names. Raises ValueError if it names none."""
    parts = table_named(key).split(".")
    if len(parts) != 4:
        raise ValueError("no table in its key")
    return unescaped(parts[2])


def _routed(routing: Routing, name: str) -> str:
    parts, topics = name.split("."), routing.topics
    if len(parts) != 4 or parts[0] != routing.topology:
        return name
    table = table_of(routing.topology, name) if routing.merged else None
    merged = None if table is None else merged_of(table, routing.merged) or merged_named(table, routing.merged)
    if merged is not None:
        return change_topic(routing.topology, merged.table_id)
    if topics == "per_table":
        return name
    return ".".join(parts[:3]) if topics == "per_database" else f"{parts[0]}.{parts[1]}.all_tables"


def schemas_topic(topology: str) -> str:
    """Return the compacted topic of table schemas; key = `source.database.table` (UTF-8), value =
    `TableSchema.to_json()`."""
    return f"{topology}.schemas"


def history_topic(topology: str) -> str:
    """Return the compacted topic of the schema history, by source, table and position (`cdc.model.history`)."""
    return f"{topology}.history"


def positions_topic(topology: str) -> str:
    """Return the compacted topic of capture positions; key = `<topology>.<source>` (UTF-8)."""
    return f"{topology}.positions"


def dead_letter_topic(topology: str) -> str:
    """Return the dead-letter topic: records that could not be handled, with the bytes and the reason."""
    return f"{topology}.deadletters"


def signals_topic(topology: str) -> str:
    """Return the topic of requests to running captures, such as "take a snapshot"; key = `<topology>.<source>`
    (UTF-8)."""
    return f"{topology}.signals"


def quarantine_topic(topology: str) -> str:
    """Return the topic of rows whose columns are unknown, as the raw events of the source."""
    return f"{topology}.quarantine"


def checks_topic(topology: str) -> str:
    """Return the compacted topic of the last results of scheduled checks; key = the check's name (UTF-8)."""
    return f"{topology}.checks"


def fleet_topic(topology: str) -> str:
    """Return the compacted topic of the desired and reported state of agents and gateways (`ingest.fleet.state`).

    It has one partition: only there all readers see its records in the same order.
    """
    return f"{topology}.fleet"


def audit_topic(topology: str) -> str:
    """Return the audit topic: who issued which command, and what was rejected; with a retention time, not compacted."""
    return f"{topology}.audit"


def versions_topic(topology: str) -> str:
    """Return the compacted topic of the tables' versions (`cdc.topology.versions`); key = the topology's name
    (UTF-8)."""
    return f"{topology}.versions"


def control_topics(topology: str) -> tuple[str, ...]:
    """Return the topics that are reserved for Tailorbird: no table's rows may be written there."""
    names = (
        schemas_topic, history_topic, positions_topic, dead_letter_topic, signals_topic, quarantine_topic, checks_topic,
        fleet_topic, audit_topic, versions_topic,
    )  # fmt: skip
    return tuple(name(topology) for name in names)


def is_topic(name: str) -> bool:
    """Return whether Kafka allows a topic of that name."""
    return _TOPIC.fullmatch(name) is not None


def distinguished(topic: str) -> str:
    """Return a topic's name with `.` and `_` made equal: Kafka refuses a topic whose name differs only in them from
    another's."""
    return topic.replace(".", "_")


def upsert_topic(topology: str, table: str) -> str:
    """Return the topic of a joined table whose sink is Kafka."""
    return f"{topology}.{table}"


def transactional_id(topology: str, source: str) -> str:
    """Return Kafka's transactional.id of a source's capture, which is also the key of its position records."""
    return f"{topology}.{source}"


def hbase_table(topology: str, table: str) -> str:
    """Return the HBase table of a joined table; the namespace is the topology's name."""
    return f"{topology}:{table}"


def layouts_table(topology: str) -> str:
    """Return the HBase table of the stored layouts and of the batches' timestamps."""
    return f"{topology}:layouts"


def control_tables(topology: str) -> tuple[str, ...]:
    """Return the HBase tables that are reserved for Tailorbird."""
    return (layouts_table(topology),)


def collection(topology: str, index: str) -> str:
    """Return the Solr collection of an index."""
    return f"{topology}_{index}"


def peer(topology: str, index: str, generation: int = 1) -> str:
    """Return the name of the replication peer of an index, which differs for each generation.

    HBase would send old edits again to a peer that is removed and added under the same name.
    """
    return f"{topology}_{index}_{generation}"
