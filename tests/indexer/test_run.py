"""The choice of an index, and how long a process holds a batch while a server is unavailable."""

from __future__ import annotations

import threading

import pytest

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.process.verdict import HealthTracker
from cdc.topology.reader import read_topology
from indexer import run_indexer
from indexer.index.processor import Tally
from indexer.peer.peer import Edits
from indexer.run_indexer import choose_index, holding

TEXT = """
name: t
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}
tables: {wide: {query: SELECT a.id FROM s.a a, row_key: [id]}}
indexes:
  one: {table: wide}
"""
NOTHING = Edits.of([])


def test_the_only_index_needs_no_name() -> None:
    """A single index needs no flag. With several ones the message names them."""
    one = read_topology(TEXT, file="t.yml", environ={})
    two = read_topology(TEXT + "  two: {table: wide}\n", file="t.yml", environ={})
    assert choose_index(one, None).name == "one"
    assert choose_index(two, "two").name == "two"
    for topology, name in ((two, None), (two, "three")):
        with pytest.raises(UsageError, match="one, two"):
            choose_index(topology, name)


def test_a_batch_is_held_while_a_server_is_unavailable() -> None:
    """HBase does not notice short outages: the same batch succeeds as soon as the server is back."""
    attempts: list[float] = []

    def process(edits: Edits, give_up: float) -> Tally:
        attempts.append(give_up)
        if len(attempts) < 3:
            raise Retriable("Solr is unavailable")
        return Tally(accepted=7)

    health = HealthTracker()
    health.ready()
    assert holding(process, threading.Event(), health)(NOTHING).accepted == 7
    assert health.judge(1e12).healthy, "a finished batch still counts as waiting"
    assert len(set(attempts)) == 1, "the time when HBase stops waiting does not move"


def test_a_batch_goes_back_when_time_is_up_or_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a batch is held longer, HBase considers the process dead. At SIGTERM another process gets the batch at
    once."""

    def process(edits: Edits, give_up: float) -> Tally:
        raise Retriable("Solr is unavailable")

    stopped = threading.Event()
    stopped.set()
    health = HealthTracker()
    with pytest.raises(Retriable):
        holding(process, stopped, health)(NOTHING)
    assert "Solr is unavailable" in health.judge(1e12).reason, "a batch that was sent back no longer counts as waiting"
    monkeypatch.setattr(run_indexer, "_HOLD_SECONDS", 0.25)
    with pytest.raises(Retriable):
        holding(process, threading.Event(), HealthTracker())(NOTHING)


def test_what_is_fatal_is_not_tried_again() -> None:
    """A loop decides by the error's class alone."""
    attempts: list[int] = []

    def process(edits: Edits, give_up: float) -> Tally:
        attempts.append(1)
        raise Fatal("another type")

    with pytest.raises(Fatal):
        holding(process, threading.Event(), HealthTracker())(NOTHING)
    assert attempts == [1]
