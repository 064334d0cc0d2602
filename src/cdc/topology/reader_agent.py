"""Read the agents of a fleet that capture a source; part of `cdc.topology.reader`."""

from __future__ import annotations

from cdc.grammar.forms import TEXT, TEXTS, mapping
from cdc.grammar.keys import DeclaredKey, Keys, Section
from cdc.grammar.values import Value
from cdc.topology.topology import AgentChoice

AGENT: Keys = {
    "names": DeclaredKey(form=TEXTS, about="Agents by name, in order of preference. Either `names` or `labels`."),
    "labels": DeclaredKey(
        form=mapping(TEXT), about="Agents by the labels in their policies. Either `names` or `labels`."
    ),
    "connection": DeclaredKey(form=TEXT, about="The name of the server in the agents' policy files.", required=True),
}


def read_agent(s: Section, *, supported: bool) -> AgentChoice | None:
    """Read `agent: {names: […] | labels: {…}, connection: …}` of a source; None if it is missing.

    `supported`: an agent can capture the source. Agents poll only sources of type `sql`.
    """
    if "agent" in s.pairs and not supported:
        s.pairs["agent"].fail("an agent", "no `capture: poll`, or type: sql: agents read the log of MySQL and MariaDB")
    for key in ("slot_name", "publication_name"):
        if "agent" in s.pairs and key in s.pairs:
            s.pairs[key].fail(f"{key} of a source that agents capture", "leave it out: agents use the default name")
    found: AgentChoice | None = s.take("agent", read=_choice)
    return found


def _choice(value: Value) -> AgentChoice:
    s = Section(value, AGENT)
    found = AgentChoice(names=s.take("names", ()), labels=s.take("labels", {}), connection=s.take("connection"))
    s.end()
    if bool(found.names) == bool(found.labels):
        value.fail("which agents?", "one of names: [paris, lyon] and labels: {site: paris}")
    return found
