"""Read the options of PostgreSQL sources; part of `cdc.topology.reader`."""

from __future__ import annotations

import re
from typing import Any

from cdc.grammar.keys import Section
from cdc.grammar.values import Value
from cdc.topology.topology import Topology

SIZE = "([1-9][0-9]{0,5})(MiB|GiB|TiB)"
_SHIFTS = {"MiB": 20, "GiB": 30, "TiB": 40}


def read_postgres(s: Section) -> dict[str, Any]:
    """Read the keys that only a source of type postgresql has, by the names of `Source`'s fields."""
    return {
        "dbname": s.take("dbname"),
        "slot_name": s.take("slot_name", ""),
        "publication_name": s.take("publication_name", "", read=_publication),
        "replica_identity": s.take("replica_identity"),
        "alarm_slot": s.take("alarm_slot"),
    }


def check_slots(topology: Topology) -> None:
    """Raise TopologyError if two sources read the same replication slot, because each would get only a part of the
    changes."""
    seen: dict[tuple[str, int, str], str] = {}
    for source in topology.sources.values():
        if not source.slot_name:
            continue
        key = (source.hostname, source.port, source.slot_name)
        if key in seen:
            path = f"sources.{source.name}.slot_name"
            raise topology.error(path, f"slot {source.slot_name} is read by {seen[key]}", "another name")
        seen[key] = source.name


def read_size(value: Value) -> int:
    """Return the bytes of a size such as `512MiB` or `4GiB`."""
    match = re.fullmatch(SIZE, value.text())
    if match is None:
        value.fail(repr(value.text()), "a size such as 512MiB or 4GiB")
    return int(match[1]) << _SHIFTS[match[2]]


def read_slot(value: Value) -> str:
    text = value.text()
    if not re.fullmatch(r"[a-z0-9_]{1,63}", text):
        value.fail(repr(text), "lower-case letters, digits and _ (63 at most)")
    return text


def _publication(value: Value) -> str:
    text = value.text()
    if not 0 < len(text.encode()) < 64:
        value.fail(repr(text), "a name of at most 63 bytes")
    return text
