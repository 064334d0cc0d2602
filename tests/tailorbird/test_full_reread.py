"""`tailorbird status` shows sources whose tables are read again after a loss of log, and tables that wait."""

from __future__ import annotations

from tailorbird.operate.status.dead_letters import incomplete_lines
from tailorbird.operate.status.full_reread import reread_sources
from tailorbird.operate.status.kafka_captured import position_of
from tailorbird.operate.status.quarantine import quarantined


def test_a_table_that_waits_for_its_replica_is_incomplete() -> None:
    """The reason comes from the stored position, and names the tables that lack its rows."""
    stored = {
        "position": {"gtid_set": "", "sequence": 7, "file": "f", "pos": 99},
        "snapshot": "running",
        "state": {"waits": {"d.t": {"since_ms": 1, "why": "replica b:1 is late", "remedy": "start it"}}},
    }
    lines = incomplete_lines(quarantined({"shop": position_of(stored, 3)}), {"wide": frozenset({"shop.d.t"})}, "t.yml")
    assert lines[0] == "INCOMPLETE table shop.d.t (so do wide): its rows are not read: replica b:1 is late; start it"


def test_a_source_whose_log_did_not_continue_is_listed_until_its_tables_are_read() -> None:
    """The reason comes from the stored position, and disappears with it."""
    stored = {
        "position": {"gtid_set": "", "sequence": 7, "file": "f", "pos": 99},
        "snapshot": "running",
        "state": {"reread": {"why": "the slot is gone", "since_ms": 1_000}, "snapshots": {"d.t": {}, "d.u": {}}},
    }
    done = {**stored, "state": {"snapshots": {"d.t": {}}}}
    (one,) = reread_sources({"shop": position_of(stored, 3), "other": position_of(done, 3)}, 31_000)
    assert str(one) == "source shop: 2 tables are being read again, for 30 s: the slot is gone"
    assert (one.source, one.tables, one.seconds) == ("shop", 2, 30.0)
