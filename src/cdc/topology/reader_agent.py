"""Read the agents of a fleet that capture a source; part of `cdc.topology.reader`."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.topology.topology import AgentChoice
from cdc.topology.values import Section, Value


def read_agent(s: Section, *, supported: bool) -> AgentChoice | None:
    """Read `agent: {names: […] | labels: {…}, connection: …}` of a source; None if it is missing.

    `supported`: an agent can capture the source. Agents poll only sources of type `sql`.
    """
    if "agent" in s.pairs and not supported:
        s.pairs["agent"].fail("an agent", "no `capture: poll`, or type: sql: agents read the log of MySQL and MariaDB")
    for key in ("slot_name", "publication_name"):
        if "agent" in s.pairs and key in s.pairs:
            s.pairs[key].fail(f"{key} of a source that agents capture", "leave it out: agents use the default name")
    return s.take("agent", _choice, None)


def _choice(value: Value) -> AgentChoice:
    s = value.section()
    nothing: Mapping[str, str] = {}
    found = AgentChoice(
        names=s.take("names", Value.texts, ()),
        labels=s.take("labels", lambda v: {name: label.text() for name, label in v.pairs().items()}, nothing),
        connection=s.take("connection", Value.text),
    )
    s.end()
    if bool(found.names) == bool(found.labels):
        value.fail("which agents?", "one of names: [paris, lyon] and labels: {site: paris}")
    return found
