"""A topology: everything that one YAML file declares, as frozen values. `cdc.topology.reader` reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cdc.model.brokers import Brokers, KafkaSecurity
from cdc.model.errors import TopologyError
from cdc.model.escapes import meanings
from cdc.model.filters import FilterPolicy, TableRule, Unrepresentable, is_captured
from cdc.model.naming import Routing, TopicRouting
from cdc.model.patterns import MergedTable, merged_named, merged_of
from cdc.model.polling import Poll
from cdc.model.schema import TableId
from cdc.model.tls import TLS_IF_OFFERED, PostgresServer, SearchServer, SecuredAddress, Tls, is_loopback
from cdc.stored.foreign import ForeignTable
from cdc.stored.lakehouse import IcebergCatalog
from cdc.topology.hooks.webhook import Webhook
from cdc.topology.panels import ALL_TIMES, Panel, TimeRange

SourceType = Literal["mysql", "mariadb", "postgresql", "kafka", "syslog", "maxscale", "sql"]
SnapshotMode = Literal["initial", "never"]
SinkKind = Literal["hbase", "kafka", "postgres", "iceberg"]
IndexKind = Literal["solr", "opensearch"]
# stores whose tables publish barriers, and can be compared with the sources
COMPARABLE: tuple[SinkKind, ...] = ("hbase", "postgres", "iceberg")
SchemaChangeBehavior = Literal["evolve", "lenient", "exception"]
Delivery = Literal["exactly_once", "at_least_once"]
TopicForm = Literal["debezium", "maxwell", "upsert"]
Decimals = Literal["string", "precise"]
PositionLostAction = Literal["auto", "fail", "resnapshot"]
Isolation = Literal["shared", "process"]
CheckStage = Literal["log", "table", "index"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Topics that other systems write, in any cluster: their format, and the topic of each table.

    `columns` (name → type as MySQL writes it) are needed for a table whose records have no inline schema. `decimals` is
    how such records represent decimals. `shared` are the topics in which a policy has more than one table."""

    brokers: Brokers
    form: TopicForm
    topics: Mapping[TableId, str]
    columns: Mapping[TableId, Mapping[str, str]] = field(default_factory=dict)
    decimals: Decimals = "string"
    shared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Addresses that receive syslog messages: (host, port) of UDP and of TCP, path of a unix socket. At least one is
    set."""

    udp: tuple[str, int] | None = None
    tcp: tuple[str, int] | None = None
    unix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoice:
    """The agents of a fleet that may capture a source: those in `names`, the preferred first, or all with these
    `labels`.

    `connection` is the alias of the source's server in the agents' policies."""

    names: tuple[str, ...]
    labels: Mapping[str, str]
    connection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source to capture: a database server, or a stream.

    `database` is the default database of table names without one. `tables` are the listed tables, and `rules` their
    options. `merged` are the tables that `tables:` declares by patterns; `rules` has their options. With
    `filter_policy` drop, capture reads only the listed tables. With accept, it reads every table of `databases` that is
    not listed without options. `position_lost` is what to do if the server's log does not contain the stored position:
    `auto` reads all tables again if the log was purged, and stops if it is another one.
    `cascades`: whether to re-read rows that foreign keys change, because the log does not contain them.
    `heartbeat_interval_ms` is how often an idle capture commits its position (0: whenever it has moved).
    `unrepresentable` is what to publish for a value that has no canonical form: NULL, the server's text, or the row as
    a dead letter.

    `poll` is set if tables are polled, and None if the log is read. `url` is the SQLAlchemy URL of a source of type
    `sql`; hostname, port, username and password are then empty. For PostgreSQL, `database` is a schema of the database
    `dbname`. `slot_name` and `publication_name` are empty if both are derived from topology and source.
    `replica_identity` full means that every table logs whole rows before their changes. `alarm_slot`: bytes of kept log
    from which a slot is an alarm. `mirror` is set for topics of other systems, `listen` for syslog.

    `agent` is set if agents of a fleet capture the source, and not a local process. On the agent, `dumps` says whether
    the policy of the host's owner allows snapshots, and `conditions` checks a snapshot's condition against that policy.
    `permitted` returns the policy's rule of any table, None if the table must not leave the host. `sharing` returns how
    many sources of the agent poll the same table. With `most_slots` replication slots of Tailorbird at the server, no
    further one is created; None: no limit. `snapshot` is the replica from which tables are read, if that is another
    server. `repr` omits `password` and `url`."""

    name: str
    type: SourceType
    hostname: str
    port: int
    username: str
    password: str = field(repr=False)
    database: str
    tables: tuple[TableId, ...]
    server_id: int
    snapshot_mode: SnapshotMode
    url: str = field(default="", repr=False)
    poll: Poll | None = None
    delivery: Delivery = "exactly_once"
    filter_policy: FilterPolicy = "drop"
    rules: Mapping[TableId, TableRule] = field(default_factory=dict)
    merged: tuple[MergedTable, ...] = ()
    position_lost: PositionLostAction = "auto"
    cascades: Literal["follow", "ignore"] = "follow"
    snapshot_max_threads: int = 2
    snapshot_locking_mode: Literal["none", "minimal"] = "none"
    tls: Tls = TLS_IF_OFFERED
    snapshot: SecuredAddress | None = None
    heartbeat_interval_ms: int = 0
    dumps: bool = True
    conditions: Callable[..., str] | None = field(default=None, repr=False, compare=False)
    permitted: Callable[[TableId], TableRule | None] | None = field(default=None, repr=False, compare=False)
    sharing: Callable[[], int] | None = field(default=None, repr=False, compare=False)
    dbname: str = ""
    most_slots: int | None = field(default=None, compare=False)
    slot_name: str = ""
    publication_name: str = ""
    replica_identity: Literal["default", "full"] = "default"
    alarm_slot: int = 4 << 30
    mirror: Mirror | None = None
    listen: Listen | None = None
    agent: AgentChoice | None = None
    unrepresentable: Unrepresentable = "null"
    databases: frozenset[str] = field(init=False, repr=False, compare=False)  # names of those with captured tables
    _listed: frozenset[TableId] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # once: a source may list tens of thousands of tables, and capture asks for each of them
        object.__setattr__(self, "_listed", frozenset(self.tables))
        object.__setattr__(self, "databases", frozenset({*(one.database for one in self.tables), self.database}))

    def captures(self, table: TableId) -> bool:
        """Return whether a table's rows are captured. A policy of the database's host may forbid it."""
        if self.permitted is not None and self.permitted(table) is None:
            return False
        if self.merged or (not self.rules and self.filter_policy == "drop"):
            return table in self._listed or merged_of(table, self.merged) is not None
        return is_captured(self.filter_policy, self.rules, self.databases, table)

    def rule_of(self, table: TableId) -> TableRule | None:
        """Return the options of a table: those of the source, which include those of a policy of the database's host.

        If the source has none, the policy's apply, also to a table that is only listed: its definition leaves the host.
        None if neither has any."""
        merged = merged_of(table, self.merged)
        own = self.rules.get(table if merged is None else merged.table_id)
        if own is not None and not own.empty:
            return own
        return (self.permitted(table) if self.permitted is not None else None) or own

    @property
    def is_trusted(self) -> bool:
        """Return whether the server proves its identity, or is on this machine."""
        return self.tls.verifies or is_loopback(self.hostname)

    @property
    def is_only_reported(self) -> bool:
        """Return whether the source is only a stream of changes, without a database that can be queried."""
        return self.type in ("kafka", "syslog", "maxscale")

    @property
    def needs_latest(self) -> bool:
        """Return whether joins must order the source's events by `source.sequence` before they use them.

        Its topics may repeat or reorder events, or lack before images."""
        unknown = self.type == "postgresql" and self.replica_identity != "full"
        return unknown or self.delivery == "at_least_once" or self.poll is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The Kafka cluster and the settings of topics; `min_compaction_lag` in seconds. `topics`: which tables share one.

    `roles` are the logins of single roles (`cdc.topology.roles`), or the error that names the missing secret."""

    brokers: Brokers
    partitions: int
    replication_factor: int
    min_compaction_lag: float
    topics: TopicRouting = "per_table"
    roles: Mapping[str, KafkaSecurity | TopologyError] = field(default_factory=dict)

    @property
    def bootstrap_servers(self) -> str:
        """Return the brokers' addresses, `host:port,…`."""
        return self.brokers.servers


@dataclass(frozen=True, slots=True, kw_only=True)
class HBase:
    """Addresses (`host:port`) of HBase's Thrift server and ZooKeeper.

    Indexers listen at the address `bind`. HBase's region servers reach them under the name `advertised_host`.
    `region_servers` are the hosts and networks that may connect; empty: those that ZooKeeper lists, and the hosts of
    `thrift` and `zookeeper`. A row whose timestamp is more than `clock_tolerance` seconds ahead is not indexed."""

    thrift: str
    zookeeper: str
    advertised_host: str = "localhost"
    bind: str = "127.0.0.1"
    region_servers: tuple[str, ...] = ()
    clock_tolerance: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Solr(SearchServer):
    """A Solr. Its base URL ends in `/solr`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSearch(SearchServer):
    """An OpenSearch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A joined table: one SELECT, the columns of its result that form the row key, its column family and salt buckets.

    The stateful steps run in `state_partitions` partitions (None: half as many as cores). That number stays the same as
    long as the state exists. `max_changes_per_batch` limits a batch. `schema_change_behavior` is what to do with the
    stored layout when the columns of the result change."""

    name: str
    query: str
    row_key: tuple[str, ...]
    family: str
    salt_buckets: int
    sink: SinkKind = "hbase"
    state_partitions: int | None = None
    max_changes_per_batch: int = 200_000
    schema_change_behavior: SchemaChangeBehavior = "evolve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joins:
    """Processes of the joins: all tables in one Spark application (`shared`), or each in its own process."""

    isolation: Isolation = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A collection of a table in a search engine. `search`: columns that are searchable by words. `commit_within`:
    delay (seconds) until a document is visible. `stub_retention`: seconds for which tombstones are kept."""

    name: str
    table: str
    collection: str
    search: tuple[str, ...]
    commit_within: float
    stub_retention: float = 3600.0
    shards: int = 1
    type: IndexKind = "solr"


def engine_name(index: Index) -> str:
    """Return the name of an index's search engine, for messages."""
    return {"solr": "Solr", "opensearch": "OpenSearch"}[index.type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A live page over an index: facets, a histogram over the column `time`, and `columns` of the newest rows.

    `refresh` is the interval in seconds. `panels` replace the histogram; they show the rows of `range` at first."""

    name: str
    index: str
    title: str
    facets: tuple[str, ...]
    time: str | None
    columns: tuple[str, ...]
    refresh: float
    range: TimeRange = ALL_TIMES
    panels: tuple[Panel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A scheduled comparison by `tailorbird verify`, `every` so many seconds: one stage of some tables.

    `stage` None means all stages; empty `tables` means all tables. A check of an index compares one of `sample` rows by
    value, other ones at each run. With `changed` it compares only what changed since the last comparison."""

    name: str
    every: float
    stage: CheckStage | None = None
    tables: tuple[str, ...] = ()
    sample: int = 1
    changed: bool = False

    def covers(self, stage: CheckStage) -> bool:
        """Return whether the check compares this stage."""
        return self.stage in (None, stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Everything that one YAML file declares. Mappings are by name, in the order of the file. `lines`: line by path."""

    name: str
    file: str
    sources: Mapping[str, Source]
    log: Log
    hbase: HBase
    solr: Solr
    tables: Mapping[str, Table]
    indexes: Mapping[str, Index]
    dashboards: Mapping[str, Dashboard]
    foreign_tables: Mapping[str, ForeignTable] = field(default_factory=dict)
    joins: Joins = Joins()
    checks: Mapping[str, Check] = field(default_factory=dict)
    webhooks: Mapping[str, Webhook] = field(default_factory=dict)
    postgres: PostgresServer | None = None
    iceberg: IcebergCatalog | None = None
    opensearch: OpenSearch = OpenSearch(url="http://127.0.0.1:9200")
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def only_captures(self) -> bool:
        """Return whether nothing is joined or indexed, so that neither HBase nor Solr is needed."""
        return not (self.tables or self.foreign_tables or self.indexes)

    @property
    def pages(self) -> dict[str, Dashboard]:
        """Return the dashboards that have a page: those over Solr. Programs search the others."""
        return {name: one for name, one in self.dashboards.items() if self.indexes[one.index].type == "solr"}

    @property
    def keeps_ledger(self) -> bool:
        """Return whether a check reads the ledger, so that a process should maintain it."""
        return any(check.covers("log") for check in self.checks.values())

    @property
    def routing(self) -> Routing:
        """Return the mapping from tables to topics in Kafka."""
        merged = (one for source in self.sources.values() for one in source.merged)
        return Routing(topology=self.name, topics=self.log.topics, merged=tuple(merged))

    def line(self, path: str) -> int:
        """Return the line of the value at a dotted path (`tables.t.query`), or of its nearest ancestor with one."""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 1)

    def error(self, path: str, what: str, expected: str, *, line_offset: int = 0) -> TopologyError:
        """Return a TopologyError at a path; `line_offset` counts lines inside the value: 2 for a query's third line."""
        line = self.line(path) + line_offset
        return TopologyError(file=self.file, line=line, path=path, what=what, expected=expected)

    def table_id(self, parts: tuple[str, ...]) -> TableId | None:
        """Return the captured table that a query names by two parts (source, table) or three; None if there is none."""
        if len(parts) not in (2, 3) or parts[0] not in self.sources:
            return None
        source = self.sources[parts[0]]
        wanted = TableId(source=parts[0], database=parts[1] if len(parts) == 3 else source.database, table=parts[-1])
        return wanted if merged_named(wanted, source.merged) or source.captures(wanted) else None

    def lateness(self, table: TableId) -> float | None:
        """Return by how many seconds a row of an append-only table may be late; None for any other table."""
        rule = self.sources[table.source].rules.get(table)
        return rule.watermark if rule is not None and rule.append_only else None

    def table_named(self, text: str) -> TableId | None:
        """Return the captured table of `source.table` or `source.database.table`, None if none is.

        Names may contain dots. If the text fits several tables, it is the one in the source's default database."""
        name, _, rest = text.partition(".")
        if name not in self.sources:
            return None
        source = self.sources[name]
        wanted = (TableId(source=name, database=d, table=t) for d, t in meanings(rest, source.database) if d and t)
        return next((table for table in wanted if source.captures(table)), None)

    def tables_meant(self, text: str, among: str | None = None) -> list[TableId]:
        """Return the captured tables that a user may mean by `table`, `database.table`, or as in `table_named`.

        A name that starts with its source is that one table. `among` restricts the search to one source."""
        sources = [source for name, source in self.sources.items() if among in (None, name)]
        named = self.table_named(text)
        if named is not None and among in (None, named.source):
            return [named]
        found = ((one.name, *names) for one in sources for names in meanings(text, one.database) if all(names))
        wanted = dict.fromkeys(TableId(source=name, database=d, table=t) for name, d, t in found)
        return [one for one in wanted if self.sources[one.source].captures(one)]
