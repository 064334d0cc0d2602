"""Name the datasets of a topology by OpenLineage's naming specification. For what it lacks, ADR 120 lists the names.

Names contain addresses and names of tables, never a login."""

from __future__ import annotations

import re

from cdc.model.brokers import Brokers
from cdc.model.naming import Routing, hbase_table, upsert_topic
from cdc.model.schema import TableId
from cdc.openlineage.datasets import DatasetName
from cdc.topology.topology import Index, Source, Table, Topology

# as SQLAlchemy reads a URL: a password may contain `/`
_URL = re.compile(r"([a-z0-9_]+)(?:\+[a-z0-9_]+)?://(?:[^:/]*(?::[^@]*)?@)?([^/?]*)(?:/([^?]*))?")
_AUTHORITY = re.compile(r"[\w.-]+(:\d+)?|\[[\da-f:.]+\](:\d+)?", re.IGNORECASE)
_SCHEMES = {"mariadb": "mysql", "postgresql": "postgres"}


def source_name(source: Source, table: TableId) -> DatasetName | None:
    """Return the name of a captured table at its source; None for syslog, which has no tables."""
    if source.type == "syslog":
        return None
    if source.mirror is not None:
        topic = source.mirror.topics.get(table)
        return None if topic is None else topic_name(source.mirror.brokers, topic)
    name = f"{table.database}.{table.table}"
    if source.type == "sql":
        return _polled(source.url, name)
    if source.type == "postgresql":
        name = f"{source.dbname}.{name}"
    scheme = _SCHEMES.get(source.type, source.type)
    return DatasetName(namespace=f"{scheme}://{_host(source.hostname)}:{source.port}", name=name)


def _polled(url: str, name: str) -> DatasetName:
    found = _URL.match(url)
    dialect, authority, database = ("sql", "", "") if found is None else found.groups(default="")
    scheme = _SCHEMES.get(dialect, dialect)
    shown = authority if _AUTHORITY.fullmatch(authority) else ""  # what is no address may contain a password
    whole = f"{database}.{name}" if database and not name.startswith(f"{database}.") else name
    return DatasetName(namespace=f"{scheme}://{shown}", name=whole)


def change_topic_name(topology: Topology, source: Source, table: TableId) -> DatasetName:
    """Return the name of the topic that contains the changes of a captured table."""
    routing = Routing(topology=topology.name, topics=topology.log.topics, merged=source.merged)
    return topic_name(topology.log.brokers, routing.topic_of(table))


def topic_name(brokers: Brokers, topic: str) -> DatasetName:
    """Return the name of a topic. Its namespace is the first broker of the list."""
    return DatasetName(namespace=f"kafka://{_first(brokers.servers)}", name=topic)


def table_name(topology: Topology, table: Table) -> DatasetName:
    """Return the name of a joined table where readers find it: in HBase, or in what `sink` says."""
    if table.sink == "kafka":
        return topic_name(topology.log.brokers, upsert_topic(topology.name, table.name))
    if table.sink == "postgres" and (server := topology.postgres) is not None:
        namespace = f"postgres://{_host(server.hostname)}:{server.port}"
        return DatasetName(namespace=namespace, name=f"{server.dbname}.{server.schema}.{_base(table.name)}")
    if table.sink == "iceberg" and (catalog := topology.iceberg) is not None:
        return DatasetName(namespace=_warehouse(catalog.warehouse), name=f"{catalog.namespace}.{_base(table.name)}")
    return hbase_name(topology, hbase_table(topology.name, table.name))


def hbase_name(topology: Topology, table: str) -> DatasetName:
    """Return the name of a table of HBase. Its namespace is the first server of ZooKeeper, by which clients find it."""
    return DatasetName(namespace=f"hbase://{_first(topology.hbase.zookeeper)}", name=table)


def index_name(topology: Topology, index: Index) -> DatasetName:
    """Return the name of an index's collection in its search engine."""
    server = topology.opensearch if index.type == "opensearch" else topology.solr
    authority = server.url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return DatasetName(namespace=f"{index.type}://{authority}", name=index.collection)


def _warehouse(where: str) -> str:
    scheme, found, rest = where.rstrip("/").partition("://")
    if not found:
        return f"file://{where.rstrip('/')}"
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def _base(table: str) -> str:
    """Return a table's name without its version, as readers of SQL see it."""
    return table.partition(".")[0]


def _first(addresses: str) -> str:
    return addresses.partition(",")[0].strip()


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
