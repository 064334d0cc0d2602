"""`tailorbird dead-letters`: list, replay and resolve records that capture, joins or indexers refused."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc.model.errors import UsageError

if TYPE_CHECKING:
    from cdc.topology.roles import KafkaRole
    from cdc.topology.topology import Topology
    from tailorbird.operate.status.dead_letters import DeadLetterList, DeadLetterRow

app = typer.Typer(
    no_args_is_help=True,
    help="List and process dead-letter records: rows that a stage refused.\n\n"
    "Example: tailorbird dead-letters list topologies/shop.yml",
)

File = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of dead-letter records, from `list`.")]
All = Annotated[bool, typer.Option("--all", help="All open records.")]


@app.command("list")
def list_(
    file: File,
    limit: Annotated[int, typer.Option(help="Show at most this many of the newest records.", min=1)] = 50,
    settled: Annotated[bool, typer.Option("--settled", help="Show replayed and resolved records instead.")] = False,
    as_json: AsJson = False,
    no_values: Annotated[
        bool, typer.Option("--no-values", help="Hide keys and reasons: they may contain values of rows.")
    ] = False,
) -> None:
    """List open dead-letter records, newest first, with reason and remedy.

    Tables in quarantine are listed before the others, one record each. Captures keep their raw rows because they cannot
    decode them.

    Example: tailorbird dead-letters list topologies/shop.yml --limit 20
    """
    from tailorbird.operate.status.dead_letters import dead_letter_lines, remedy_of
    from tailorbird.operate.status.hidden_values import records_without_values

    topology = _topology(file)
    dead_letters = _read(topology, limit)
    found = dead_letters.settled if settled else [*_quarantine(topology), *dead_letters.dead_letters]
    found = records_without_values(found) if no_values else found
    now_ms = time.time_ns() // 1_000_000
    for one in found:
        if as_json:
            typer.echo(json.dumps({**dataclasses.asdict(one), "remedy": "" if settled else remedy_of(one, file)}))
        else:
            typer.echo("\n".join(dead_letter_lines(one, file, now_ms)))
    if as_json:
        return
    total = sum(one.dead_letters for one in dead_letters.waiting)
    if not settled and total > len(dead_letters.dead_letters):
        typer.echo(f"{total - len(dead_letters.dead_letters)} more are open: --limit {total}")
    elif not found:
        typer.echo("no settled dead-letter records" if settled else "no open dead-letter records")


@app.command("show")
def show(file: File, id_: Annotated[str, typer.Argument(metavar="ID", help="Id from `list`.")]) -> None:
    """Print everything that a dead-letter record contains, as JSON.

    Example: tailorbird dead-letters show topologies/shop.yml 3f2a9c01de
    """
    from tailorbird.operate.status.dead_letters import remedy_of, whole
    from tailorbird.operate.status.kafka_dead_letters import records_at

    topology = _topology(file)
    (dead_letter,) = _chosen(_read(topology, None), _quarantine(topology), [id_])
    place = dead_letter.partition, dead_letter.offset
    record = records_at(topology, [place]).get(place)
    reported: dict[str, Any] = dataclasses.asdict(dead_letter)
    reported["remedy"] = "" if dead_letter.settled else remedy_of(dead_letter, file)
    reported["letter"] = None if record is None else whole(record)
    typer.echo(json.dumps(reported, indent=2, ensure_ascii=False))


@app.command("replay")
def replay(file: File, ids: Ids = None, all_: All = False, as_json: AsJson = False) -> None:
    """Process dead-letter records again: read the rows again, or index them again.

    The records are closed at once. A row that is refused again makes a new dead-letter record. If a record cannot be
    replayed, the command prints how to fix it and exits with 1. Captures process the request when they run.

    Example: tailorbird dead-letters replay topologies/shop.yml --all
    """
    from ingest.capture.signals import signal_value
    from ingest.log.kafka_signals import send
    from tailorbird.cli.index.cli_index_rebuild import index_again
    from tailorbird.operate.status.dead_letters import value_of
    from tailorbird.operate.status.kafka_dead_letters import newest_schemas, records_at, settle
    from tailorbird.operate.status.replays import replay_of, where_of

    topology = _topology(file, "operator")
    dead_letters = _wanted(topology, ids, all_)
    places = {one.id: (one.partition, one.offset) for one in dead_letters}
    records = records_at(topology, places.values())
    given = [(one, value_of(records[at]) if (at := places[one.id]) in records else {}) for one in dead_letters]
    plan = replay_of(topology, given, newest_schemas(topology) if any(one.reads for one in dead_letters) else {})
    for table, conditions in plan.rereads.items():
        name = table.name
        send(topology, table.source, signal_value("execute-snapshot", (name,), where_of(conditions)))
        settle(topology, plan.done[str(table)], "replayed")
        what = f"{len(conditions)} rows are read again" if conditions else "the table is read again"
        _report(as_json, f"{table}: {what}", table=str(table), rows=len(conditions), settled=plan.done[str(table)])
    for index, rows in plan.rows.items():
        dead = index_again(topology, topology.indexes[index], rows).dead
        settle(topology, plan.done[index], "replayed")
        what = f"{len(rows)} rows are indexed again, {dead} are dead letters again"
        _report(as_json, f"index {index}: {what}", index=index, rows=len(rows), settled=plan.done[index], again=dead)
    for dead_letter, remedy in plan.by_hand:
        _report(as_json, f"{dead_letter.id}: not replayed; {remedy}", id=dead_letter.id, remedy=remedy)
    if not dead_letters:
        _report(as_json, "nothing to replay")
    if plan.by_hand:
        raise typer.Exit(1)


@app.command("resolve")
def resolve(file: File, ids: Ids = None, all_: All = False, as_json: AsJson = False) -> None:
    """Mark dead-letter records as settled without processing them.

    A table in quarantine stays there until its columns are known. The command then prints the remedy and exits with 1.

    Example: tailorbird dead-letters resolve topologies/shop.yml 3f2a9c01de
    """
    from tailorbird.operate.status.dead_letters import QUARANTINE, DeadLetterRow, remedy_of
    from tailorbird.operate.status.kafka_dead_letters import settle

    topology = _topology(file, "operator")
    dead_letters, kept = list[DeadLetterRow](), list[DeadLetterRow]()
    for one in _wanted(topology, ids, all_):
        (kept if one.stage == QUARANTINE else dead_letters).append(one)
    settle(topology, dead_letters, "resolved")
    _report(as_json, f"{len(dead_letters)} dead-letter records are resolved", settled=dead_letters)
    for one in kept:  # all later rows of the table are held too
        _report(as_json, f"{one.id}: not resolved; {remedy_of(one, file)}", id=one.id, remedy=remedy_of(one, file))
    if kept:
        raise typer.Exit(1)


def joined_from(topology: Topology) -> dict[str, frozenset[str]]:
    """Return the captured tables that each joined table reads."""
    from joins.select.parser import tables_of

    return {name: frozenset(map(str, tables_of(topology, table))) for name, table in topology.tables.items()}


def _topology(file: str, role: KafkaRole = "console") -> Topology:
    from cdc.process.file_topology import load_topology
    from cdc.process.kafka_grants import granted

    return granted(load_topology(file, role), role)


def _read(topology: Topology, keep: int | None) -> DeadLetterList:
    from tailorbird.operate.status.dead_letters import DeadLetterList
    from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader

    with DeadLetterReader(topology, DeadLetterList(topology.name, keep=keep)) as reader:
        return reader.read()


def _quarantine(topology: Topology) -> list[DeadLetterRow]:
    from tailorbird.operate.status.kafka_captured import captured_positions
    from tailorbird.operate.status.quarantine import quarantine_dead_letters

    return quarantine_dead_letters(captured_positions(topology))


def _wanted(topology: Topology, ids: Sequence[str] | None, all_: bool) -> list[DeadLetterRow]:
    """Return the open records with the given ids, or all open records with `--all`.

    Prints a note for each given record that is already settled. Raises UsageError without ids or `--all`, with both,
    and for an unknown id.
    """
    if bool(ids) == all_:
        raise UsageError("no dead-letter records given", "give ids from `tailorbird dead-letters list`, or --all")
    dead_letters, kept = _read(topology, None), _quarantine(topology)
    if all_:
        return [*kept, *dead_letters.dead_letters]
    found = _chosen(dead_letters, kept, ids or ())
    for one in found:
        if one.settled:
            typer.echo(f"{one.id}: already {one.settled}", err=True)
    return [one for one in found if not one.settled]


def _chosen(dead_letters: DeadLetterList, kept: Sequence[DeadLetterRow], ids: Sequence[str]) -> list[DeadLetterRow]:
    known = {one.id: one for one in (*kept, *dead_letters.dead_letters, *dead_letters.settled)}
    if unknown := [each for each in ids if each not in known]:
        raise UsageError(f"no dead-letter record {', '.join(unknown)}", "`tailorbird dead-letters list` shows the ids")
    return [known[each] for each in dict.fromkeys(ids)]


def _report(as_json: bool, said: str, *, settled: Sequence[DeadLetterRow] = (), **reported: Any) -> None:
    """Print `said`, or with `--json` an object with the ids of `settled` records and the other arguments."""
    typer.echo(json.dumps({**reported, "settled": [one.id for one in settled]}) if as_json else said)
