"""Read the options of received syslog messages; part of `cdc.topology.reader`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from cdc.topology.topology import Listen
from cdc.topology.values import Section, Value


def read_syslog(s: Section) -> dict[str, Any]:
    """Read the keys that only a source of type syslog has, by the names of `Source`'s fields."""
    return {"listen": s.take("listen", _listen)}


def messages_alone(s: Section, rules: Mapping[TableId, TableRule], table: TableId) -> Mapping[TableId, TableRule]:
    """Return the rule of the table `messages`, the only one of a syslog source. Any other table under `tables` is an
    error."""
    if [one.table for one in rules] not in ([], [table.table]):
        s.pairs["tables"].fail(f"a table that is not {table.table}", f"{table.table}: the one that syslog has")
    return {table: next(iter(rules.values()), TableRule())}


def _listen(value: Value) -> Listen:
    s = value.section()
    listen = Listen(
        udp=s.take("udp", _address, None), tcp=s.take("tcp", _address, None), unix=s.take("unix", Value.text, "")
    )
    s.end()
    if not (listen.udp or listen.tcp or listen.unix):
        value.fail("nothing in it", "udp: host:port, tcp: host:port or unix: path")
    return listen


def _address(value: Value) -> tuple[str, int]:
    host, _, port = value.address().rpartition(":")
    return host, int(port)
