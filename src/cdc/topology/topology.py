"""A topology: everything one YAML file declares, as frozen values. `cdc.topology.reader` reads and checks the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cdc.model.brokers import Brokers
from cdc.model.errors import TopologyError
from cdc.model.escapes import meanings
from cdc.model.filters import FilterPolicy, TableRule, Unrepresentable, is_captured
from cdc.model.schema import TableId
from cdc.stored.foreign import ForeignTable
from cdc.topology.panels import ALL_TIMES, Panel, TimeRange

SourceType = Literal["mysql", "mariadb", "postgresql", "kafka", "syslog", "maxscale", "sql"]
SnapshotMode = Literal["initial", "never"]
Engine = Literal["jvm", "python"]
SinkKind = Literal["hbase", "kafka"]
SchemaChangeBehavior = Literal["evolve", "lenient", "exception"]
Delivery = Literal["exactly_once", "at_least_once"]
PollMode = Literal["updated_at", "feed"]
TopicForm = Literal["debezium", "maxwell", "upsert"]
Decimals = Literal["string", "precise"]
Isolation = Literal["shared", "process"]
CheckStage = Literal["log", "table", "index"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """How a source is polled: by which column, so many rows a query, every `interval` seconds.

    `updated_at`: a timestamp set whenever a row changes; transactions of up to `lag` seconds are waited for. `feed`: a
    number that only grows and that no two rows share, assigned after their commit.
    """

    cursor: str
    mode: PollMode
    limit: int
    interval: float
    lag: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Topics that others write, of any cluster: in which form, which topic tells which table, and its columns (name →
    type as MySQL writes it) where no inline schema does. `decimals` says how they stand in records without one.
    """

    brokers: Brokers
    form: TopicForm
    topics: Mapping[TableId, str]
    columns: Mapping[TableId, Mapping[str, str]] = field(default_factory=dict)
    decimals: Decimals = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where syslog messages are received: (host, port) of UDP and of TCP, a unix socket's path; one at least."""

    udp: tuple[str, int] | None = None
    tcp: tuple[str, int] | None = None
    unix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoice:
    """The agents of a fleet that may capture a source: by `names`, first choice first, or those that have all `labels`;
    and the alias of its server in their policies.
    """

    names: tuple[str, ...]
    labels: Mapping[str, str]
    connection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A database server to capture; `database` is what two-part table names of queries stand in.

    `tables` are the tables listed, all of them captured under `filter_policy` drop, and `rules` what is said of each;
    under accept every other table of `databases` is. `password` never appears in messages or logs (`repr` leaves it
    out). `position_lost` says what becomes of a position that the server's log does not continue; `cascades`, whether
    rows are read again that foreign keys change, which the log does not tell;
    `heartbeat_interval_ms`, how often an idle capture commits its position (0: whenever it has moved). `poll` is set
    where the tables are polled and None where the log is read; `url` is how SQLAlchemy reaches a source of type `sql`,
    whose hostname, port, username and password are empty. `dumps`: whether tables may be read whole, which no topology
    forbids, but the owner of a database's host may; `conditions` then says how the condition of a snapshot is asked.
    Of PostgreSQL `database` is a schema of the database
    `dbname`; `slot_name` and `publication_name` are empty where both are called after topology and source, and
    `replica_identity` full where every table tells whole rows before their changes. `mirror` is set where topics of
    others are the source, which has no server of its own, and `listen` where syslog messages are. `agent` is set where
    agents of a fleet capture it, and no process beside the topology. `unrepresentable` says how a row is published of
    which a value has no canonical form: with NULL, with the server's text, or not at all (a dead-letter record).
    """

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
    position_lost: Literal["fail", "resnapshot"] = "fail"
    cascades: Literal["follow", "ignore"] = "follow"
    snapshot_max_threads: int = 2
    snapshot_locking_mode: Literal["none", "minimal"] = "none"
    ssl_mode: Literal["preferred", "required", "disabled"] = "preferred"
    heartbeat_interval_ms: int = 0
    dumps: bool = True
    conditions: Callable[[TableId, str], str] | None = field(default=None, repr=False, compare=False)
    dbname: str = ""
    slot_name: str = ""
    publication_name: str = ""
    replica_identity: Literal["default", "full"] = "default"
    mirror: Mirror | None = None
    listen: Listen | None = None
    agent: AgentChoice | None = None
    unrepresentable: Unrepresentable = "null"

    @property
    def databases(self) -> frozenset[str]:
        """The databases whose tables are looked at."""
        return frozenset({table.database for table in self.tables} | {self.database})

    def captures(self, table: TableId) -> bool:
        """Whether a table's rows are captured."""
        if not self.rules and self.filter_policy == "drop":
            return table in self.tables
        return is_captured(self.filter_policy, self.rules, self.databases, table)

    @property
    def is_only_reported(self) -> bool:
        """Whether what happened is told by others, and no database can be asked beside that."""
        return self.type in ("kafka", "syslog", "maxscale")

    @property
    def needs_latest(self) -> bool:
        """Whether its topics may repeat or reorder events, or lack before images, so that joins must order them."""
        unknown = self.type == "postgresql" and self.replica_identity != "full"
        return unknown or self.delivery == "at_least_once" or self.poll is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The Kafka cluster and how the topics are made; `min_compaction_lag` in seconds."""

    brokers: Brokers
    partitions: int
    replication_factor: int
    min_compaction_lag: float

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, `host:port,…`."""
        return self.brokers.servers


@dataclass(frozen=True, slots=True, kw_only=True)
class HBase:
    """Addresses `host:port` of HBase's Thrift server and ZooKeeper.

    `advertised_host` is the name by which HBase's region servers reach the indexers, `bind` where those listen.
    """

    thrift: str
    zookeeper: str
    advertised_host: str = "localhost"
    bind: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solr:
    """Base URL of Solr, ending in `/solr`; basic authentication and the certificates to trust, where set.

    `password` never appears in messages or logs (`repr` leaves it out).
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """An aggregated table: one SELECT, the columns of its result that form the row key, its family and salt buckets.

    `engine` runs its stateful steps in so many `state_partitions` (None: by the machine's cores), which a run keeps for
    good; `max_changes_per_batch` bounds a batch; `schema_change_behavior` says what becomes of the stored layout when
    the query's result changes.
    """

    name: str
    query: str
    row_key: tuple[str, ...]
    family: str
    salt_buckets: int
    engine: Engine = "jvm"
    sink: SinkKind = "hbase"
    state_partitions: int | None = None
    max_changes_per_batch: int = 20_000
    schema_change_behavior: SchemaChangeBehavior = "evolve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joins:
    """How the tables' joins run: all in one Spark application (`shared`), or each in a process of its own."""

    isolation: Isolation = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A Solr collection over an aggregated table; `search` are the columns found by words, `commit_within` seconds.

    `stub_retention` (seconds) is how long a deleted row's stub is kept at least.
    """

    name: str
    table: str
    collection: str
    search: tuple[str, ...]
    commit_within: float
    stub_retention: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A live page over an index: facets, a histogram over `time`, the newest rows' `columns`; `refresh` seconds.

    With `panels` the page shows these, over the rows of `range` until somebody chooses another one.
    """

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
    """What `tailorbird verify` compares every so many seconds, beside the pipeline: one stage (None: all of them) of
    some tables (none: all of them), named as it names them. `sample`: of so many rows of an index one is compared by
    value, other ones at each run.
    """

    name: str
    every: float
    stage: CheckStage | None = None
    tables: tuple[str, ...] = ()
    sample: int = 1

    def covers(self, stage: CheckStage) -> bool:
        """Whether it compares that stage."""
        return self.stage in (None, stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What one YAML file declares; every mapping is by name, in the file's order."""

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
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def only_captures(self) -> bool:
        """Whether nothing is joined or indexed, so that neither HBase nor Solr is needed."""
        return not (self.tables or self.foreign_tables or self.indexes)

    @property
    def keeps_ledger(self) -> bool:
        """Whether a check reads the ledger, so that one process had better keep it."""
        return any(check.covers("log") for check in self.checks.values())

    def line(self, path: str) -> int:
        """Line of the value at a dotted path (`tables.orders_wide.query`); of its nearest ancestor that has one."""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 1)

    def error(self, path: str, what: str, expected: str, *, line_offset: int = 0) -> TopologyError:
        """A TopologyError at a path; `line_offset` counts lines inside the value, as in a query's third line (2)."""
        return TopologyError(
            file=self.file, line=self.line(path) + line_offset, path=path, what=what, expected=expected
        )

    def table_id(self, parts: tuple[str, ...]) -> TableId | None:
        """The captured table that a query names by two parts (source, table) or three; None if there is none."""
        if len(parts) not in (2, 3) or parts[0] not in self.sources:
            return None
        source = self.sources[parts[0]]
        wanted = TableId(source=parts[0], database=parts[1] if len(parts) == 3 else source.database, table=parts[-1])
        return wanted if source.captures(wanted) else None

    def lateness(self, table: TableId) -> float | None:
        """How many seconds late a row of an append-only table may come; None of a table whose rows may change."""
        rule = self.sources[table.source].rules.get(table)
        return rule.watermark if rule is not None and rule.append_only else None

    def table_named(self, text: str) -> TableId | None:
        """The captured table that `source.table` or `source.database.table` means, whose names may hold dots; or None.

        What can be read in both ways is the table of the source's own database.
        """
        name, _, rest = text.partition(".")
        if name not in self.sources:
            return None
        source = self.sources[name]
        wanted = (TableId(source=name, database=d, table=t) for d, t in meanings(rest, source.database) if d and t)
        return next((table for table in wanted if source.captures(table)), None)

    def tables_meant(self, text: str, among: str | None = None) -> list[TableId]:
        """The captured tables that a person may mean by `table`, `database.table`, or as in `table_named`.

        A name that begins with its source is that one table. `among` names the one source to look at.
        """
        sources = [source for name, source in self.sources.items() if among in (None, name)]
        named = self.table_named(text)
        if named is not None and among in (None, named.source):
            return [named]
        wanted = [
            TableId(source=one.name, database=database, table=table)
            for one in sources
            for database, table in meanings(text, one.database)
            if database and table
        ]
        return [one for one in dict.fromkeys(wanted) if self.sources[one.source].captures(one)]
