"""`tailorbird rewind`: set a capture back to an older position."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ingest.records.capture_interfaces import Checkpoint


def rewind(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    source: Annotated[str | None, typer.Option("--source", help="Which source; needed when there are several.")] = None,
    to_sequence: Annotated[
        int | None, typer.Option("--to-sequence", help="The newest kept position of at most this sequence number.")
    ] = None,
    before: Annotated[
        str, typer.Option("--before", help="The newest kept position before this time (ISO 8601, UTC).")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per position and line.")] = False,
) -> None:
    """Set a capture back to an older position, or list the positions.

    Every change is published again under the sequence number that it had, so that whoever keeps the greatest number
    of a key, as joins over a source with `delivery: at_least_once` do, drops the replay. Without a place, the positions
    that are kept are listed. A capture that runs meanwhile ends; start it again.

    Example: tailorbird rewind topologies/shop.yml --source shop --before 2026-03-01T12:00:00
    """
    from cdc.model.errors import UsageError
    from cdc.process.file_topology import load_topology
    from ingest.log.kafka_rewind import kept_positions, set_back
    from ingest.run_capture import choose

    topology = load_topology(file)
    chosen = choose(topology, source)
    if chosen.poll is not None:
        raise UsageError(f"source {chosen.name} is polled", "rewind a source whose log is captured")
    if to_sequence is None and not before:
        for mark in kept_positions(topology, chosen):
            typer.echo(json.dumps(_shown(mark)) if as_json else _line(mark))
        return
    try:
        latest_ms = datetime.fromisoformat(before).replace(tzinfo=UTC).timestamp() * 1000 if before else None
    except ValueError:
        raise UsageError(f"--before {before} is no time", "write 2026-03-01T12:00:00") from None
    mark = set_back(topology, chosen, to_sequence, latest_ms)
    typer.echo(json.dumps(_shown(mark)) if as_json else f"{chosen.name} goes on from {_line(mark)}")


def _shown(mark: Checkpoint) -> dict[str, object]:
    at = mark.position
    return {"sequence": at.sequence, "file": at.file, "pos": at.pos, "gtid_set": at.gtid_set, "ts_ms": mark.ts_ms}


def _line(mark: Checkpoint) -> str:
    at = mark.position
    when = (
        datetime.fromtimestamp(mark.ts_ms / 1000, UTC).isoformat(timespec="seconds") if mark.ts_ms else "the beginning"
    )
    return f"sequence {at.sequence}, {at.file}:{at.pos}, {when}" + (f", {at.gtid_set}" if at.gtid_set else "")
