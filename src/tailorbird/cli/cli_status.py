"""`tailorbird status`: show the processes and indexes of a topology, and replication peers that hold HBase logs."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cdc.model.errors import Retriable, TailorbirdError
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Index, Topology
from tailorbird.cli.cli_dead_letters import joined_from
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.dead_letters import DeadLetterList, incomplete_lines, readers_of
from tailorbird.operate.status.file_parts import asked_parts
from tailorbird.operate.status.full_reread import reread_sources
from tailorbird.operate.status.hidden_values import counts_without_values
from tailorbird.operate.status.index_status import IndexStatus, index_statuses, missing_changes, reported
from tailorbird.operate.status.part_status import WIDE, lines_of
from tailorbird.operate.status.prepared import prepared_at
from tailorbird.operate.status.quarantine import quarantined
from tailorbird.operate.status.selection import MOST, ListChoice
from tailorbird.operate.status.unrepresentable import stood_in, stood_in_line

if TYPE_CHECKING:
    from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader

NoValues = Annotated[bool, typer.Option("--no-values", help="Hide keys and reasons: they may contain values of rows.")]
_WATCH_EVERY = 2.0
_CLEAR = "\x1b[H\x1b[2J"


def status(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds, until Ctrl-C.")] = False,
    search: Annotated[str, typer.Option("--search", help="Only entries that contain all of these words.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Entries of each list, the worst first.")] = MOST,
    no_values: NoValues = False,
) -> None:
    """Show the health of every process and index.

    Exit code 1: a process of this machine is down, stopped, stuck or unreachable; an index is not served; a peer
    belongs to no index; rows are missing because of dead letters, quarantine or a lost log (INCOMPLETE); or a check
    found a difference (DIFFERENT) or is overdue. A process that neither runs nor failed on this machine is `elsewhere`.
    The exit code covers all entries, also those that --search and --limit leave out.

    Example: tailorbird status topologies/shop.yml --watch

    Example: tailorbird status topologies/shop.yml --search "join orders" --limit 10
    """
    selection = ListChoice(search=search, limit=limit)
    topology, dead_letters = load_topology(file), None
    with ExitStack() as kept:
        while True:
            if watch and not as_json:
                typer.echo(_CLEAR, nl=False)
            well = _reported_parts(topology, selection, as_json=as_json)
            # imported after the first lines are printed: loading Kafka's client takes longer than printing them
            from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader

            dead_letters = dead_letters or kept.enter_context(
                DeadLetterReader(topology, DeadLetterList(topology.name, keep=0))
            )
            look = _Look(selection, as_json, no_values)
            well = _reported_servers(topology, dead_letters, look) and well
            if not watch:
                break
            time.sleep(_WATCH_EVERY)
    if not well:
        raise typer.Exit(1)


def _reported_parts(topology: Topology, selection: ListChoice, *, as_json: bool) -> bool:
    """Print the processes, without querying a server. Return whether all of them make progress."""
    parts = asked_parts(topology)
    shown = selection.matching(parts, lambda part: f"{part.part} {part.state}")
    if as_json:
        for part in shown:
            typer.echo(json.dumps({"kind": "process", **dataclasses.asdict(part)}))
    else:
        for line in selection.lines(shown, lines_of, lambda part: part.state, lambda part: part.moves):
            typer.echo(line)
    return all(part.moves for part in parts)


class _Look(NamedTuple):
    """Settings of the output: which entries, as JSON or text, and whether values of rows are hidden."""

    selection: ListChoice
    as_json: bool
    no_values: bool


def _reported_servers(topology: Topology, dead_letters: DeadLetterReader, look: _Look) -> bool:
    """Print the state in HBase, Kafka and Solr. Return whether all is well, as far as they are available."""
    from tailorbird.operate.probes.kafka_probe import kafka_problem

    selection, as_json = look.selection, look.as_json
    well, captured = True, None
    # a probe answers within two seconds; each reader would wait much longer for an unavailable Kafka
    if unavailable := kafka_problem(topology.log.brokers):
        well = False
        typer.echo(f"{'away':<{WIDE}}Kafka at {topology.log.brokers}: {unavailable}; tailorbird stack status", err=True)
    elif denied := _denied(topology):
        well = False
        typer.echo(f"{'denied':<{WIDE}}{denied}", err=True)
    else:
        captured = _captured(topology)
        well = _complete(topology, dead_letters, captured or {}, look) and captured is not None
        for one in prepared_at(captured or {}, time.time_ns() // 1_000_000):
            reported_as_json = json.dumps({"kind": "prepared", **dataclasses.asdict(one)})
            typer.echo(reported_as_json if as_json else f"{'open':<{WIDE}}{one}")
        for lost in reread_sources(captured or {}, time.time_ns() // 1_000_000):
            well = False
            reported_as_json = json.dumps({"kind": "reread", **dataclasses.asdict(lost)})
            typer.echo(reported_as_json if as_json else f"INCOMPLETE {lost}")
        for counted in stood_in(topology, captured or {}):
            shown = json.dumps({"kind": "unrepresentable", **dataclasses.asdict(counted)})
            typer.echo(shown if as_json else f"{'':<{WIDE}}{stood_in_line(counted)}")
        well = _checked(topology, look) and well
    if topology.only_captures:
        return well
    away = list[str]()
    try:
        indexes = _indexes(topology, captured, away)
    except TailorbirdError as error:  # the processes are already printed
        typer.echo(f"{'away':<{WIDE}}indexes: {error}", err=True)
        return False
    shown_indexes = selection.matching(indexes, lambda each: f"index {each.index} {each.peer} {each.state}")
    if as_json:
        for each in shown_indexes:
            typer.echo(json.dumps({"kind": "index", **dataclasses.asdict(each)}))
    else:
        for line in selection.lines(shown_indexes, _index_lines, lambda one: one.state, _serves):
            typer.echo(line)
    for why in away:
        typer.echo(f"{'away':<{WIDE}}{why}", err=True)
    return well and not away and all(map(_serves, indexes))


def _denied(topology: Topology) -> str:
    """Return which rights in Kafka this command lacks; empty if none. HBase and Solr are reported without them."""
    from cdc.process.kafka_grants import check_grants

    try:
        check_grants(topology, "console")
    except TailorbirdError as error:
        return str(error)
    return ""


def _complete(
    topology: Topology,
    dead_letters: DeadLetterReader,
    captured: Mapping[str, CapturedPosition],
    look: _Look,
) -> bool:
    """Print the tables and indexes that lack rows, because of dead letters or quarantine. Return whether there is
    none."""
    selection, as_json = look.selection, look.as_json
    try:
        waiting = [*quarantined(captured), *dead_letters.read().waiting]
    except Retriable as error:
        typer.echo(f"{'away':<{WIDE}}dead letters: {error}", err=True)
        return False
    if look.no_values:
        waiting = counts_without_values(waiting)
    shown = selection.matching(waiting, lambda each: f"{each.stage} {each.of}")
    if as_json:
        for each in shown:
            reported = {**dataclasses.asdict(each), "look": f"tailorbird dead-letters list {topology.file}"}
            typer.echo(
                json.dumps({"kind": "incomplete", **reported, "tables": readers_of(each, joined_from(topology))})
            )
    elif shown:
        most = shown
        if len(shown) > selection.limit:
            most = sorted(shown, key=lambda each: -each.dead_letters)[: selection.limit]
        typer.echo("\n".join(incomplete_lines(most, joined_from(topology), topology.file)))
        if len(shown) > len(most):
            typer.echo(f"{'':<{WIDE}}… and {len(shown) - len(most):,} more: see --limit, --search and --json")
    return not waiting


def _checked(topology: Topology, look: _Look) -> bool:
    """Print the latest results of checks. Return whether all are equal and none is overdue."""
    if not topology.checks:
        return True
    from tailorbird.verify.checks.check_status import check_statuses, status_lines
    from tailorbird.verify.checks.kafka_runs import RunsReader
    from tailorbird.verify.checks.runs import without_findings

    try:
        with RunsReader(topology) as reader:
            runs = without_findings(reader.read()) if look.no_values else reader.read()
            found = check_statuses(topology, runs, time.time_ns() // 1_000_000)
    except Retriable as error:
        typer.echo(f"{'away':<{WIDE}}checks: {error}", err=True)
        return False
    for one in found:
        typer.echo(json.dumps(one.to_json()) if look.as_json else "\n".join(status_lines(one)))
    return all(one.well for one in found)


def _serves(each: IndexStatus) -> bool:
    return each.state == "serving"


def _index_lines(each: IndexStatus) -> Iterator[str]:
    name = f"index {each.index}" if each.index else "peer"
    far = f", {reported(each)}" if reported(each) else ""
    served = "1 process" if len(each.processes) == 1 else f"{len(each.processes)} processes"
    yield f"{each.state:<{WIDE}}{name}  (peer {each.peer}, {served}{far})"
    if each.remedy:
        yield f"{'':<{WIDE}}{each.remedy}"


def _indexes(topology: Topology, captured: Mapping[str, CapturedPosition] | None, away: list[str]) -> list[IndexStatus]:
    """Return the state of each index and peer. Adds the errors of an unavailable search engine to `away`."""
    from indexer.engine.engine import visible_timestamp
    from indexer.peer.zk_registration import session
    from indexer.rebuild.zk_state import Generations, StoredTargets
    from tailorbird.operate.status.visible_cuts import visible_sequences
    from tailorbird.provision.hbase_admin import HBaseAdmin

    by_collection = {index.collection: index for index in topology.indexes.values()}

    def visible_ms(collection: str) -> int | None:
        try:
            return visible_timestamp(topology, by_collection[collection])
        except Retriable as error:
            # peers are idle while the search engine is unavailable
            away.append(str(error))
            return None

    def missing(index: Index) -> int | None:
        if captured is None or index.table not in topology.tables:
            return None
        return missing_changes(_sources(topology, index), captured, visible_sequences(topology, index))

    hbase = topology.hbase
    with session(hbase.zookeeper) as client, HBaseAdmin(zookeeper=hbase.zookeeper, thrift=hbase.thrift) as admin:
        generations = Generations(client)
        return index_statuses(
            topology,
            admin.peers(),
            generation=lambda index: generations.current(topology.name, index),
            announced=generations.announced,
            collections=lambda peer, live: StoredTargets(client, peer, collection=live).read().collections,
            visible_ms=visible_ms,
            missing=missing,
            now_ms=time.time_ns() // 1_000_000,
        )


def _captured(topology: Topology) -> dict[str, CapturedPosition] | None:
    from tailorbird.operate.status.kafka_captured import captured_positions

    try:
        return captured_positions(topology)
    except Retriable as error:
        typer.echo(str(error), err=True)
        return None


def _sources(topology: Topology, index: Index) -> frozenset[str]:
    from joins.select.parser import tables_of

    return frozenset(table.source for table in tables_of(topology, topology.tables[index.table]))
