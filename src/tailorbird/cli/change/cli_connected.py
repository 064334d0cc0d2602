"""Connect to a topology's servers, and to the journal that admits one apply at a time."""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from cdc.model.errors import UsageError
from cdc.process.file_running import ticks_of
from cdc.topology.topology import Topology

if TYPE_CHECKING:
    from indexer.peer.zk_registration import Client
    from tailorbird.provision.hbase_admin import HBaseAdmin
    from tailorbird.provision.journal import Journal, JournalEntry
    from tailorbird.provision.stores import Stores

NOTHING_TO_MAKE = "nothing to create: the topology has no tables and no indexes; a capture creates its own topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedServers:
    """Connections to a topology's servers."""

    stores: Stores
    client: Client
    hbase: HBaseAdmin


@contextmanager
def stores_of(topology: Topology) -> Iterator[Stores]:
    """Connect to the servers of a topology while the block runs."""
    with connected_to(topology) as connected:
        yield connected.stores


@contextmanager
def journal_of(client: Client, topology: Topology, settling: float) -> Iterator[Journal]:
    """Context manager: yield the journal of the topology's applies, and lock it against other applies.

    Waits at most `settling` seconds for another apply to end."""
    from tailorbird.provision.journal import Applier, Journal
    from tailorbird.provision.zk_journal import StoredJournal

    host, pid = platform.node(), os.getpid()
    journal = Journal(
        StoredJournal(client, topology.name),
        Applier(host=host, pid=pid, ticks=ticks_of(pid), token=uuid.uuid4().hex),
        clock_ms=lambda: time.time_ns() // 1_000_000,
        dead=lambda who: who.host == host and ticks_of(who.pid) != who.ticks,
    )
    cut_off = _begun(journal, time.monotonic() + settling)
    if cut_off is not None:
        typer.echo(f"an earlier apply was interrupted ({cut_off}); this one continues it", err=True)
    try:
        yield journal
    finally:
        journal.let_go()


def _begun(journal: Journal, deadline: float) -> JournalEntry | None:
    while True:
        try:
            return journal.begin()
        except UsageError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)


@contextmanager
def connected_to(topology: Topology) -> Iterator[ConnectedServers]:
    from indexer.peer.zk_registration import cluster_key, session
    from indexer.rebuild.zk_state import Generations
    from tailorbird.cli.index.cli_index_rebuild import StoredBackfills
    from tailorbird.provision.engine_admin import admin_of
    from tailorbird.provision.hbase_admin import HBaseAdmin
    from tailorbird.provision.stores import Stores

    zookeeper = topology.hbase.zookeeper
    with (
        HBaseAdmin(zookeeper=zookeeper, thrift=topology.hbase.thrift) as hbase,
        session(zookeeper) as client,
    ):
        stores = Stores(
            tables=hbase,
            peers=hbase,
            collections=lambda index: admin_of(topology, index),
            names=Generations(client),
            backfills=StoredBackfills(topology, client),
            cluster_key=lambda peer: cluster_key(zookeeper, peer),
        )
        yield ConnectedServers(stores=stores, client=client, hbase=hbase)
