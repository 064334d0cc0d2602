"""`tailorbird apply`: make in HBase and Solr what a topology needs."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.process.file_running import ticks_of
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from cdc.words.errors import UsageError

if TYPE_CHECKING:
    from console.provision.apply import Outcome
    from console.provision.journal import Journal, JournalEntry
    from console.provision.stores import Stores
    from indexer.peer.zk_registration import Client


def apply(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per thing, for programs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As `tailorbird plan`: do nothing.")] = False,
) -> None:
    """Make the tables, collections and replication peers that a topology needs; what exists is kept.

    Run it before the processes of the topology, and again after every change of the file; `tailorbird plan` says
    beforehand what there is to do, and what it costs. Cut off at any step, the next apply does what is left; a second
    one beside it is refused. Exit code 1 where a table's query was changed: its join does not go on before its state is
    made anew, and the line says by which command.

    Example: tailorbird apply topologies/shop.yml --dry-run
    """
    topology = load_topology(file)
    if dry_run:
        from console.commands.cli_plan import show_plan

        show_plan(topology, as_json=as_json)
        return
    for outcome in provision(topology):
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(outcome)))
        else:
            typer.echo(f"{outcome.done:<8}{outcome.kind:<11}{outcome.name}  ({outcome.note})")
    # imported here: `--help` should not wait for the compiler of queries
    from joins.process.kafka_changed import changed_queries

    left = changed_queries(topology)
    for name in left:
        remedy = f"tailorbird run {topology.file} --rebuild {name}"
        if as_json:
            typer.echo(json.dumps({"kind": "query", "name": name, "done": "changed", "note": remedy}))
        else:
            typer.echo(f"stale   query      {name}  (its rows are of the query it had; {remedy})")
    if left:
        raise typer.Exit(1)


def provision(topology: Topology, *, patience: float = 0.0) -> Generator[Outcome]:
    """Make what a topology lacks, yielding each outcome as it is reached; errors as in `console.provision`.

    UsageError where another apply of the topology is at work for longer than `patience` (seconds).
    """
    # imported here: HBase's and Solr's clients cost half a second, which `--help` should not
    from console.provision.apply import apply as run
    from console.provision.plan import plan

    with _connected(topology) as (stores, client), _journal(client, topology, patience) as journal:
        yield from run(topology, plan(topology, stores), stores, journal.at)
        journal.end()


@contextmanager
def stores_of(topology: Topology) -> Iterator[Stores]:
    """The servers of a topology, connected while the block runs."""
    with _connected(topology) as (stores, _):
        yield stores


@contextmanager
def _journal(client: Client, topology: Topology, patience: float) -> Iterator[Journal]:
    """The journal, begun: no other apply is at work on the topology while the block runs."""
    from console.provision.journal import Applier, Journal
    from console.provision.zk_journal import StoredJournal

    host, pid = platform.node(), os.getpid()
    journal = Journal(
        StoredJournal(client, topology.name),
        Applier(host=host, pid=pid, ticks=ticks_of(pid), token=uuid.uuid4().hex),
        clock_ms=lambda: time.time_ns() // 1_000_000,
        dead=lambda who: who.host == host and ticks_of(who.pid) != who.ticks,
    )
    cut_off = _begun(journal, time.monotonic() + patience)
    if cut_off is not None:
        typer.echo(f"an apply was cut off ({cut_off}); this one does what it left", err=True)
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
def _connected(topology: Topology) -> Iterator[tuple[Stores, Client]]:
    from console.commands.index.cli_index_rebuild import StoredBackfills
    from console.provision.hbase_admin import HBaseAdmin
    from console.provision.solr_cloud import admin_of
    from console.provision.stores import Stores
    from indexer.peer.zk_registration import cluster_key, session
    from indexer.rebuild.zk_state import Generations

    zookeeper = topology.hbase.zookeeper
    with (
        HBaseAdmin(zookeeper=zookeeper, thrift=topology.hbase.thrift) as hbase,
        session(zookeeper) as client,
    ):
        yield (
            Stores(
                tables=hbase,
                peers=hbase,
                collections=lambda: admin_of(topology.solr),
                names=Generations(client),
                backfills=StoredBackfills(topology, client),
                cluster_key=lambda peer: cluster_key(zookeeper, peer),
            ),
            client,
        )
