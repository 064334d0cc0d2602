"""Every name that two stages must agree on; pure functions of the topology's name."""

from __future__ import annotations

import re

from cdc.model.escapes import bounded, escaped, unescaped
from cdc.model.schema import TableId

# Key of a change topic's truncate markers: a JSON text, which no row's key is (those are objects).
TRUNCATE_KEY = b'"truncate"'
_LONGEST = 249  # characters of a topic's name
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{_LONGEST}}}")


def change_topic(topology: str, table: TableId) -> str:
    """Topic of a source table's changes: `topology.source.database.table`, database and table escaped.

    Names of letters, digits, `_` and `-` stay as they are (`cdc.model.escapes`). A name that is too long ends with a
    hash. No two tables have one topic, and `table_of` reads it back.
    """
    return bounded(f"{topology}.{escaped_table(table)}", _LONGEST, of=str(table))


def escaped_table(table: TableId) -> str:
    """`source.database.table` with database and table escaped, in any length: three parts without a dot in them."""
    return f"{table.source}.{escaped(table.database)}.{escaped(table.table)}"


def file_name(table: TableId) -> str:
    """`source.database.table` as a file's name, escaped as in topics."""
    return bounded(escaped_table(table), _LONGEST, of=str(table))


def exported_topic(prefix: str, table: TableId) -> str:
    """Topic of an export's: `prefix.database.table`, escaped as in ours."""
    return bounded(f"{prefix}.{escaped(table.database)}.{escaped(table.table)}", _LONGEST, of=str(table))


def table_of(topology: str, topic: str) -> TableId | None:
    """The table whose changes a topic holds; None for other topics, and for names that were cut."""
    parts = topic.removeprefix(f"{topology}.").split(".")
    if not topic.startswith(f"{topology}.") or len(parts) != 3:
        return None
    try:
        table = TableId(source=parts[0], database=unescaped(parts[1]), table=unescaped(parts[2]))
    except ValueError:
        return None
    return table if change_topic(topology, table) == topic else None


def schemas_topic(topology: str) -> str:
    """Compacted topic of table schemas; key = `source.database.table` (UTF-8), value = `TableSchema.to_json()`."""
    return f"{topology}.schemas"


def history_topic(topology: str) -> str:
    """Compacted topic of the schema history, by source, table and position (`cdc.model.history`)."""
    return f"{topology}.history"


def positions_topic(topology: str) -> str:
    """Compacted topic of capture positions; key = `<topology>.<source>` (UTF-8)."""
    return f"{topology}.positions"


def dead_letter_topic(topology: str) -> str:
    """Topic of what could not be handled, with its bytes and the reason."""
    return f"{topology}.deadletters"


def signals_topic(topology: str) -> str:
    """Topic of signals to running captures; key = `<topology>.<source>` (UTF-8)."""
    return f"{topology}.signals"


def quarantine_topic(topology: str) -> str:
    """Topic of rows whose columns are not known, as the raw events of the source."""
    return f"{topology}.quarantine"


def checks_topic(topology: str) -> str:
    """Compacted topic of what scheduled checks found last; key = the check's name (UTF-8)."""
    return f"{topology}.checks"


def fleet_topic(topology: str) -> str:
    """Compacted topic of what agents and gateways shall do and do (`ingest.fleet.state`); one partition: its order is
    what decides.
    """
    return f"{topology}.fleet"


def audit_topic(topology: str) -> str:
    """Topic of who commanded what, and what was refused; kept for a time, not compacted."""
    return f"{topology}.audit"


def versions_topic(topology: str) -> str:
    """Compacted topic of the tables' versions (`cdc.topology.versions`); key = the topology's name (UTF-8)."""
    return f"{topology}.versions"


def control_topics(topology: str) -> tuple[str, ...]:
    """The topics that are Tailorbird's own: no table's rows may go there."""
    names = (
        schemas_topic, history_topic, positions_topic, dead_letter_topic, signals_topic, quarantine_topic, checks_topic,
        fleet_topic, audit_topic, versions_topic,
    )  # fmt: skip
    return tuple(name(topology) for name in names)


def is_topic(name: str) -> bool:
    """Whether Kafka can have a topic of that name."""
    return _TOPIC.fullmatch(name) is not None


def distinguished(topic: str) -> str:
    """What Kafka tells topics apart by: it refuses one that differs from another in `.` and `_` alone."""
    return topic.replace(".", "_")


def upsert_topic(topology: str, table: str) -> str:
    """Topic of an aggregated table whose sink is Kafka."""
    return f"{topology}.{table}"


def transactional_id(topology: str, source: str) -> str:
    """Kafka's transactional.id of a source's capture, and the key of its position records."""
    return f"{topology}.{source}"


def hbase_table(topology: str, table: str) -> str:
    """HBase table of an aggregated table; the namespace is the topology's name."""
    return f"{topology}:{table}"


def layouts_table(topology: str) -> str:
    """HBase table of the stored layouts and of the batches' stamps."""
    return f"{topology}:layouts"


def control_tables(topology: str) -> tuple[str, ...]:
    """The HBase tables that are Tailorbird's own."""
    return (layouts_table(topology),)


def collection(topology: str, index: str) -> str:
    """Solr collection of an index."""
    return f"{topology}_{index}"


def peer(topology: str, index: str, generation: int = 1) -> str:
    """Replication peer of an index; a new generation takes a new name, since a peer re-added would replay its WAL."""
    return f"{topology}_{index}_{generation}"
