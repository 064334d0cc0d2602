"""The keys of a source, with the types of source that have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

from cdc.grammar.forms import (
    DURATION,
    FILLED,
    TEXT,
    ValueForm,
    matching,
    nullable,
    number,
    one_of,
    read_elsewhere,
)
from cdc.grammar.keys import DeclaredKey, Keys, schema_of, section
from cdc.model.filters import FilterPolicy, Unrepresentable
from cdc.model.polling import BACKLOG_LIMIT, PollMode
from cdc.topology.reader_agent import AGENT
from cdc.topology.reader_poll import URL, read_url
from cdc.topology.reader_postgres import SIZE, read_size, read_slot
from cdc.topology.reader_rules import RULE, TOPIC_RULE
from cdc.topology.reader_servers import SECURITY
from cdc.topology.reader_streams import LISTEN
from cdc.topology.reader_tls import REPLICA, TLS
from cdc.topology.topology import Decimals, Delivery, PositionLostAction, SnapshotMode, SourceType, TopicForm

TYPES: tuple[SourceType, ...] = get_args(SourceType)


def _but(*without: SourceType) -> tuple[str, ...]:
    return tuple(one for one in TYPES if one not in without)


_Only = dict[str, tuple[str, ...]]
_MYSQL: _Only = {"type": ("mysql", "mariadb")}
_POSTGRES: _Only = {"type": ("postgresql",)}
_KAFKA: _Only = {"type": ("kafka",)}
_LOGIN: _Only = {"type": _but("sql", "kafka", "syslog")}
_STORED: _Only = {"type": _but("kafka", "maxscale")}
_POLLED: _Only = {"capture": ("poll",)}
_LOGGED: _Only = {"capture": ("log",)}
_FEED: _Only = _POLLED | {"mode": ("feed",)}
_UPDATED: _Only = _POLLED | {"mode": ("updated_at",)}


def _listed(keys: Keys, *, at_least: int, alone: bool = True) -> ValueForm:
    """Return the form of captured tables: a mapping from names to options, and with `alone` also a list of names."""
    schema = {
        "type": ["array", "object"] if alone else "object",
        "items": TEXT.schema,
        "additionalProperties": nullable(schema_of(keys)),
        "minItems": at_least,
        "minProperties": at_least,
    }
    return ValueForm(read=read_elsewhere, schema=schema)


def _tables() -> Iterable[DeclaredKey]:
    """Return the declarations of `tables`: required if only the listed ones are captured."""
    about = "Tables: `table` (of `database`) or `database.table`, as a list, or as a mapping with options of each."
    dropped: _Only = {"filter_policy": ("drop",)}
    accepted: _Only = {"filter_policy": ("accept",)}
    others: _Only = {"type": _but("kafka", "syslog")}
    yield DeclaredKey(form=_listed(RULE, at_least=1), about=about, required=True, only=others | dropped)
    yield DeclaredKey(form=_listed(RULE, at_least=0), about=about, only=others | accepted)
    yield DeclaredKey(
        form=_listed(TOPIC_RULE, at_least=1, alone=False), about=about, required=True, only=_KAFKA | dropped
    )
    yield DeclaredKey(form=_listed(TOPIC_RULE, at_least=0, alone=False), about=about, only=_KAFKA | accepted)
    yield DeclaredKey(form=_listed(RULE, at_least=0), about=about, only={"type": ("syslog",)})


_DATABASE = "The database of two-part table names in queries (`source.table`); for PostgreSQL, a schema."
_ROWS = number(0, BACKLOG_LIMIT - 1)
SOURCE: Keys = {
    "type": DeclaredKey(form=one_of(*TYPES), about="The kind of source. `sql` needs `capture: poll`.", required=True),
    "capture": DeclaredKey(form=one_of("log", "poll"), about="Follow the log, or poll the tables.", default="log"),
    "filter_policy": DeclaredKey(
        form=one_of(*get_args(FilterPolicy)),
        about="`drop` captures only the listed tables, `accept` all except those listed without settings.",
        default="drop",
    ),
    "mode": DeclaredKey(
        form=one_of(*get_args(PollMode)),
        about="The cursor is a time set at every change, or a number that is assigned after the commit and only grows.",
        default="updated_at",
        only=_POLLED,
    ),
    "database": (
        DeclaredKey(form=TEXT, about=_DATABASE, required=True, only={"type": _but("postgresql")}),
        DeclaredKey(form=TEXT, about=_DATABASE, default="public", only=_POSTGRES),
    ),
    "tables": tuple(_tables()),
    "hostname": DeclaredKey(form=TEXT, about="The server's host.", required=True, only=_LOGIN),
    "port": DeclaredKey(
        form=number(1, 65535), about="The server's port. Default: 3306 (PostgreSQL: 5432, MaxScale: 4001).", only=_LOGIN
    ),
    "username": DeclaredKey(form=TEXT, about="The login.", required=True, only=_LOGIN),
    "password": DeclaredKey(form=TEXT, about="The password; take it from a variable.", required=True, only=_LOGIN),
    **{name: replace(key, only=_LOGIN) for name, key in TLS.items() if isinstance(key, DeclaredKey)},
    "server_id": DeclaredKey(
        form=number(1, 2**32 - 1),
        about="The id with which capture connects as a replica. No other replica of that server may have it.",
        required=True,
        only=_MYSQL | _LOGGED,
    ),
    "snapshot_mode": DeclaredKey(
        form=one_of(*get_args(SnapshotMode)),
        about="Whether existing rows are read first.",
        default="initial",
        only=_STORED | _LOGGED,
    ),
    "snapshot_max_threads": DeclaredKey(
        form=number(1, 64),
        about="Tables, or ranges of large tables, that are read at the same time.",
        default="2",
    ),
    "snapshot_locking_mode": DeclaredKey(
        form=one_of("none", "minimal"),
        about="`minimal` allows a short FLUSH TABLES WITH READ LOCK, which MySQL without GTIDs needs.",
        default="none",
    ),
    "snapshot": DeclaredKey(form=section(REPLICA), about="Read tables from this replica. MySQL with GTIDs only."),
    "delivery": DeclaredKey(
        form=one_of(*get_args(Delivery)),
        about="With `at_least_once`, topics may repeat or reorder events, or lack the row before the change.",
    ),
    "cascades": DeclaredKey(
        form=one_of("follow", "ignore"),
        about="`follow`: read rows again that a foreign key changes, because MySQL does not log them.",
        default="follow",
    ),
    "unrepresentable": DeclaredKey(
        form=one_of(*get_args(Unrepresentable)),
        about="How rows with values that their type cannot represent are published.",
        default="null",
    ),
    "position_lost": DeclaredKey(
        form=one_of(*get_args(PositionLostAction)),
        about="What to do if the server no longer has the log at the committed position.",
        default="auto",
    ),
    "heartbeat_interval_ms": DeclaredKey(
        form=number(0, 86_400_000),
        about="How often a capture without changes commits its position. 0: only when the log has advanced.",
        default="0",
        only=_LOGGED,
    ),
    "agent": DeclaredKey(form=section(AGENT), about="Agents of a fleet that capture the source instead of `run`."),
    "dbname": DeclaredKey(form=TEXT, about="The database.", required=True, only=_POSTGRES),
    "slot_name": DeclaredKey(
        form=matching("[a-z0-9_]{1,63}", read_slot, digits=True),
        about="The replication slot; created if missing.",
        only=_POSTGRES,
    ),
    "publication_name": DeclaredKey(form=FILLED, about="The publication; created if missing.", only=_POSTGRES),
    "replica_identity": DeclaredKey(
        form=one_of("default", "full"),
        about="`full`: every captured table has REPLICA IDENTITY FULL, so joins need not store old rows.",
        default="default",
        only=_POSTGRES,
    ),
    "alarm_slot": DeclaredKey(
        form=matching(SIZE, read_size, "512MiB", "4GiB"),
        about="An alarm if the server keeps more of its log for the slot.",
        default="4GiB",
        only=_POSTGRES,
    ),
    "bootstrap_servers": DeclaredKey(
        form=TEXT, about="The brokers of the topics' cluster.", required=True, only=_KAFKA
    ),
    "security": DeclaredKey(form=section(SECURITY), about="Authentication, as in `log.security`.", only=_KAFKA),
    "format": DeclaredKey(
        form=one_of(*get_args(TopicForm)), about="The format of the records.", required=True, only=_KAFKA
    ),
    "decimals": DeclaredKey(
        form=one_of(*get_args(Decimals)),
        about="Decimals in records without schema: strings or numbers, or Connect's bytes.",
        default="string",
        only=_KAFKA,
    ),
    "listen": DeclaredKey(
        form=section(LISTEN, at_least=1), about="Where to receive messages.", required=True, only={"type": ("syslog",)}
    ),
    "url": DeclaredKey(
        form=matching(f"{URL}(.|\\n)*", read_url, "postgresql+psycopg://user:password@host/database"),
        about="The SQLAlchemy URL of any database, instead of hostname, port, username and password.",
        required=True,
        only={"type": ("sql",)},
    ),
    "cursor": DeclaredKey(
        form=FILLED,
        about="The column to poll by. Default: `updated_at`, or `feed_sync_id` with `mode: feed`.",
        only=_POLLED,
    ),
    "limit": DeclaredKey(
        form=number(1, 100_000), about="Rows per query, also of snapshots.", default="1000", only=_POLLED
    ),
    "interval": DeclaredKey(
        form=DURATION, about="From the start of one poll to the start of the next.", default="1s", only=_POLLED
    ),
    "lag": DeclaredKey(form=DURATION, about="How far back each poll reads again.", default="10s", only=_UPDATED),
    "alarm_since_success": DeclaredKey(
        form=DURATION, about="An alarm if no poll of all tables has succeeded for that long.", only=_POLLED
    ),
    "alarm_backlog": DeclaredKey(
        form=_ROWS, about="An alarm if more rows of a table wait when a poll begins.", only=_POLLED
    ),
    "alarm_behind": (
        DeclaredKey(
            form=DURATION, about="An alarm if the greatest cursor is ahead of the last one by more.", only=_UPDATED
        ),
        DeclaredKey(
            form=number(0, 2**63 - 1),
            about="An alarm if the greatest cursor is ahead of the last one by more.",
            only=_FEED,
        ),
    ),
    "alarm_unassigned": DeclaredKey(
        form=_ROWS, about="An alarm if more rows of a table have no number when a poll begins.", only=_FEED
    ),
}
