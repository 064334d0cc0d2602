"""Sources of a topology that agents capture: what `tailorbird apply` publishes, and that no other process captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.model.errors import TopologyError, UsageError
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest import run_capture
from ingest.fleet.leases import Presence
from ingest.fleet.state import presence_record
from tailorbird.operate.pipeline.proc_pipeline import parts
from tailorbird.operate.status.part_status import parts_of
from tailorbird.web.fleet.file_fleet import declared_sources
from tailorbird.web.fleet.wanted import WantedSource, wanted
from tests.ingest.fleet.test_commands import WHO, SessionHandler

TEXT = """
name: t
sources:
  shop: {type: mysql, hostname: 10.0.0.5, username: u, password: p, database: d, server_id: 7,
         agent: {labels: {site: paris}, connection: shop-db}, tables: {orders: {mask: {mail: redact}}}}
  own: {type: mysql, hostname: h, username: u, password: p, database: d, server_id: 8, tables: [users]}
tables: {w: {query: SELECT o.id FROM shop.orders o, row_key: [id]}}
"""


def topology(folder: Path, text: str = TEXT) -> Topology:
    (folder / "t.yml").write_text(text)
    return read_topology(text, file=str(folder / "t.yml"), environ={})


def applied(session_handler: SessionHandler, made: Topology) -> list[WantedSource]:
    found = list(wanted(made, declared_sources(made), session_handler.topic.state))
    for one in found:
        if one.done == "made":
            session_handler.commands.add(WHO, one.source, one.reported)
        elif one.done == "changed":
            session_handler.commands.configure(WHO, one.source, one.reported)
    return found


def test_what_the_file_says_is_what_agents_shall_capture(tmp_path: Path) -> None:
    """A configuration has no address and password, and names the agents with the labels.

    It is written once, and again if the file, its agents or an operator changed it. Operators decide whether it runs.
    """
    session_handler = SessionHandler()
    made = topology(tmp_path)
    with pytest.raises(UsageError, match="source shop: no agent with site=paris has connected"):
        applied(session_handler, made)
    for name, site in (("b", "paris"), ("a", "paris"), ("c", "rome")):
        labels = {"site": site, "rack": "1"}
        session_handler.topic.write(presence_record(Presence(agent=name, gateway="g", connected=True, labels=labels)))
    [one] = applied(session_handler, made)
    assert (one.source, one.done, one.note) == ("shop", "made", "by a or b")
    spec = session_handler.spec("shop")
    assert spec is not None
    assert (spec.agents, spec.connection, spec.running) == (("a", "b"), "shop-db", True)
    assert spec.keys == {"database": "d", "server_id": 7, "tables": {"orders": {"mask": {"mail": "redact"}}}}
    assert [one.done for one in applied(session_handler, made)] == ["kept"]
    session_handler.commands.configure(WHO, "shop", {"running": False}, change=True)
    assert [one.done for one in applied(session_handler, made)] == ["kept"], "stopped, it stays so"
    session_handler.commands.start(WHO, "shop", {"users": {}})
    assert [one.done for one in applied(session_handler, made)] == ["changed"]
    spec = session_handler.spec("shop")
    assert spec is not None
    assert (set(spec.tables), spec.running) == ({"orders"}, False)
    named = topology(tmp_path, TEXT.replace("labels: {site: paris}", "names: [c]"))
    assert [one.note for one in applied(session_handler, named)] == ["by c"]
    assert len(session_handler.topic.state.desired["shop"]) == 5


def test_a_source_of_postgresql_keeps_its_type(tmp_path: Path) -> None:
    """Slot and publication have the names that derive from topology and source."""
    session_handler = SessionHandler()
    text = TEXT.replace("type: mysql", "type: postgresql, dbname: b", 1).replace(" server_id: 7,", "", 1)
    text = text.replace("labels: {site: paris}", "names: [a]")
    made = topology(tmp_path, text)
    assert [one.done for one in applied(session_handler, made)] == ["made"]
    assert [one.done for one in applied(session_handler, made)] == ["kept"]
    spec = session_handler.spec("shop")
    assert spec is not None
    assert spec.keys == {"type": "postgresql", "database": "d", "tables": {"orders": {"mask": {"mail": "redact"}}}}
    for key in ("slot_name", "publication_name"):
        with pytest.raises(TopologyError, match=f"{key} of a source that agents capture"):
            topology(tmp_path, text.replace("dbname: b", f"dbname: b, {key}: mine"))


def test_no_process_during_the_topology_captures_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents and a capture of `run` would take the source from each other forever."""
    made = topology(tmp_path)
    assert [part.name for part in parts(made, home=tmp_path) if part.stage == "capture"] == ["capture own"]
    assert [part for part in parts_of(made) if part.startswith("capture")] == ["capture own"]
    with pytest.raises(UsageError, match="source shop is captured by agents of a fleet"):
        run_capture.run(made.file, "shop")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("labels: {site: paris}, ", "", "which agents"),
        ("labels: {site: paris}", "labels: {site: paris}, names: [a]", "which agents"),
        (", connection: shop-db", "", "key connection is missing"),
        ("labels:", "label:", "unknown key label"),
        ("server_id: 7,", "capture: poll,", "agents read the log of MySQL"),
    ],
)
def test_a_choice_is_read_strictly(tmp_path: Path, old: str, new: str, why: str) -> None:
    """With the key that is wrong."""
    with pytest.raises(TopologyError, match=why):
        topology(tmp_path, TEXT.replace(old, new, 1))
