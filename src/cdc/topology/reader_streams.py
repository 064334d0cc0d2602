"""Read the options of sources that are streams: topics that other systems write, and received syslog messages.

Part of `cdc.topology.reader`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.grammar.forms import ADDRESS, TEXT
from cdc.grammar.keys import DeclaredKey, Keys, Section
from cdc.grammar.values import Value
from cdc.model.brokers import Brokers
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from cdc.model.types import from_mysql
from cdc.topology.reader_servers import read_security
from cdc.topology.topology import Decimals, Listen, Mirror, TopicForm, Topology

LISTEN: Keys = {
    "udp": DeclaredKey(form=ADDRESS, about="Address of UDP. `listen` needs at least one of its three keys."),
    "tcp": DeclaredKey(form=ADDRESS, about="Address of TCP. `listen` needs at least one of its three keys."),
    "unix": DeclaredKey(form=TEXT, about="Path of a unix datagram socket, which capture creates."),
}


class MirrorReader:
    """Reads a source of type kafka: `table` reads the options of one table, `read` those of the source."""

    def __init__(self, s: Section) -> None:
        self._section = s
        self._form: TopicForm = s.take("format")
        self._topics: dict[TableId, str] = {}
        self._columns: dict[TableId, Mapping[str, str]] = {}

    def table(self, table: TableId, s: Section) -> None:
        """Read the options of a table that only this type of source has, such as its topic."""
        self._topics[table] = s.take("topic")
        columns = s.take("columns", read=_columns)
        if columns:
            self._columns[table] = columns

    def listed(self, item: Value) -> None:
        """Fail for a table that is listed by name only, because its topic is missing."""
        item.fail("a table without its topic", "a mapping `table: {topic: …}`")

    def read(self) -> dict[str, Any]:
        """Read the keys of the source, by the names of `Source`'s fields."""
        s = self._section
        brokers = Brokers(s.take("bootstrap_servers"), s.take("security", read=read_security))
        decimals: Decimals = s.take("decimals")
        return {
            "mirror": Mirror(
                brokers=brokers, form=self._form, topics=self._topics, columns=self._columns, decimals=decimals
            ),
        }


def check_keys(s: Section, rules: Mapping[TableId, TableRule]) -> None:
    """Raise TopologyError for a table of a MaxScale source without `message_key_columns`: the stream contains no
    keys."""
    if lacking := [table.table for table, rule in rules.items() if not rule.message_key_columns]:
        s.pairs["tables"].fail(f"table {lacking[0]} without its key", f"{lacking[0]}: {{message_key_columns: […]}}")


def check_mirrors(topology: Topology) -> None:
    """Raise TopologyError for `delivery: exactly_once` with a topic of upserts, whose records contain no before
    images."""
    for source in topology.sources.values():
        if source.mirror is not None and source.mirror.form == "upsert" and source.delivery == "exactly_once":
            path = f"sources.{source.name}.delivery"
            raise topology.error(path, "exactly_once of upserts, which have no before images", "at_least_once")


def _columns(value: Value) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, kind in value.pairs().items():
        try:
            from_mysql(kind.text())
        except ValueError as error:
            kind.fail(str(error), "a type as MySQL writes it, such as bigint, varchar(20), decimal(10,2), datetime(3)")
        found[name] = kind.text()
    return found or value.fail("no column", "name: type, for each")


def read_syslog(s: Section) -> dict[str, Any]:
    """Read the keys that only a source of type syslog has, by the names of `Source`'s fields."""
    return {"listen": s.take("listen", read=_listen)}


def messages_alone(s: Section, rules: Mapping[TableId, TableRule], table: TableId) -> Mapping[TableId, TableRule]:
    """Return the rule of the table `messages`, the only one of a syslog source. Any other table under `tables` is an
    error."""
    if [one.table for one in rules] not in ([], [table.table]):
        s.pairs["tables"].fail(f"a table that is not {table.table}", f"{table.table}: the one that syslog has")
    return {table: next(iter(rules.values()), TableRule())}


def _listen(value: Value) -> Listen:
    s = Section(value, LISTEN)
    listen = Listen(udp=s.take("udp", read=_address), tcp=s.take("tcp", read=_address), unix=s.take("unix", ""))
    s.end()
    if not (listen.udp or listen.tcp or listen.unix):
        value.fail("nothing in it", "udp: host:port, tcp: host:port or unix: path")
    return listen


def _address(value: Value) -> tuple[str, int]:
    host, _, port = value.address().rpartition(":")
    return host, int(port)
