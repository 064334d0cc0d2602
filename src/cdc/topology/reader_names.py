"""Refuse names that Kafka or HBase does not allow or cannot distinguish; part of `cdc.topology.reader`.

A table whose topic had the name of a control topic would mix its rows with, for example, the positions of captures.
"""

from __future__ import annotations

from cdc.model import naming
from cdc.model.escapes import dotted
from cdc.model.schema import TableId
from cdc.topology.copies import declared_tables
from cdc.topology.topology import Source, Topology


def check_names(topology: Topology) -> None:
    """Raise TopologyError for the first table whose topic or HBase table is reserved, used twice, or invalid."""
    own = naming.control_topics(topology.name)
    taken = {naming.distinguished(topic): topic for topic in own}
    for source in topology.sources.values():
        common = set[str]()
        for place, table in enumerate(declared_tables(source)):
            topic = topology.routing.topic_of(table)
            if topology.routing.shares(naming.change_topic(topology.name, table)):
                if topic in common:
                    continue
                common.add(topic)
            _take(topology, taken, topic, _path(topology, source, table, place), "one of the two tables only")
    for name, joined in topology.tables.items():
        if joined.sink == "kafka":
            topic = naming.upsert_topic(topology.name, name)
            if topic in own:
                raise topology.error(f"tables.{name}", f"topic {topic} is Tailorbird's own", "another name")
            _take(topology, taken, topic, f"tables.{name}", "another name")
        elif joined.sink == "hbase" and naming.hbase_table(topology.name, name) in naming.control_tables(topology.name):
            what = f"HBase table {naming.hbase_table(topology.name, name)} is Tailorbird's own"
            raise topology.error(f"tables.{name}", what, "another name")
    own_tables = {naming.hbase_table(topology.name, t.name) for t in topology.tables.values() if t.sink == "hbase"}
    for foreign in topology.foreign_tables.values():
        if foreign.table in (*naming.control_tables(topology.name), *own_tables):
            what = f"HBase table {foreign.table} is Tailorbird's own"
            raise topology.error(f"foreign_tables.{foreign.name}.table", what, "an external table")


def _take(topology: Topology, taken: dict[str, str], topic: str, path: str, expected: str) -> None:
    if not naming.is_topic(topic):
        wanted = "names of letters, digits, `.`, `_` and `-` only, 249 characters in all"
        raise topology.error(path, f"Kafka does not allow a topic {topic!r}", wanted)
    other = taken.get(naming.distinguished(topic))
    if other is not None:
        what = (
            f"Kafka does not distinguish topic {topic} from {other}"
            if other != topic
            else f"topic {topic} is used twice"
        )
        raise topology.error(path, what, expected)
    taken[naming.distinguished(topic)] = topic


def _path(topology: Topology, source: Source, table: TableId, place: int) -> str:
    """Return the path of a captured table: by its place in a list, or as a key."""
    tables = f"sources.{source.name}.tables"
    listed = f"{tables}[{place}]"
    names = (table.table, dotted(table.table), f"{table.database}.{table.table}", table.name)
    keys = tuple(f"{tables}.{name}" for name in names)
    return next((path for path in (listed, *keys) if path in topology.lines), tables)
