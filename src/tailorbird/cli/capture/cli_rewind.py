"""`tailorbird rewind`: reset a capture to an older position."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ingest.records.capture_interfaces import Checkpoint


def rewind(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    source: Annotated[str | None, typer.Option("--source", help="The source. Required if there are several.")] = None,
    to_sequence: Annotated[
        int | None, typer.Option("--to-sequence", help="The newest stored position up to this sequence number.")
    ] = None,
    before: Annotated[
        str, typer.Option("--before", help="The newest stored position before this time (ISO 8601, UTC).")
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            "--to", help="The newest stored position up to a GTID set, FILE:POSITION or time (ISO 8601, UTC)."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per position and line.")] = False,
) -> None:
    """Reset a capture to an older position, or list the stored positions.

    Every change is published again with its original sequence number. A consumer that keeps the greatest number per
    key, like joins over a source with `delivery: at_least_once`, therefore ignores the replay. Without a position, the
    command lists the stored ones. A running capture ends; start it again.

    Example: tailorbird rewind topologies/shop.yml --source shop --before 2026-03-01T12:00:00
    """
    from cdc.model.errors import UsageError
    from cdc.process.file_topology import load_topology
    from cdc.process.kafka_grants import granted
    from ingest.events.log_place import parse_place, parse_time
    from ingest.log.kafka_rewind import kept_positions, set_back
    from ingest.run_capture import choose

    topology = granted(load_topology(file, "operator"), "operator")
    chosen = choose(topology, source)
    if chosen.poll is not None:
        raise UsageError(f"source {chosen.name} is polled", "choose a source that is captured from its log")
    if chosen.type in ("kafka", "syslog", "maxscale"):
        what = f"source {chosen.name} is of type {chosen.type}, and its older positions are not stored"
        raise UsageError(what, "choose a source that is captured from its log")
    if to and chosen.type not in ("mysql", "mariadb"):
        raise UsageError(f"source {chosen.name} has no binary log, so no --to", "use --before or --to-sequence")
    if [to_sequence is not None, bool(before), bool(to)].count(True) > 1:
        raise UsageError("several positions are given", "give one of --to-sequence, --before and --to")
    if to_sequence is None and not before and not to:
        for mark in kept_positions(topology, chosen):
            typer.echo(json.dumps(_shown(mark)) if as_json else _line(mark))
        return
    try:
        latest_ms = parse_time(before) / 1000 if before else None
    except ValueError:
        raise UsageError(f"--before {before}: not a time", "write 2026-03-01T12:00:00") from None
    mark = set_back(topology, chosen, to_sequence, latest_ms, parse_place(to) if to else None)
    typer.echo(json.dumps(_shown(mark)) if as_json else f"{chosen.name} resumes from {_line(mark)}")


def _shown(mark: Checkpoint) -> dict[str, object]:
    at = mark.position
    return {"sequence": at.sequence, "file": at.file, "pos": at.pos, "gtid_set": at.gtid_set, "ts_ms": mark.ts_ms}


def _line(mark: Checkpoint) -> str:
    at = mark.position
    when = (
        datetime.fromtimestamp(mark.ts_ms / 1000, UTC).isoformat(timespec="seconds") if mark.ts_ms else "the beginning"
    )
    return f"sequence {at.sequence}, {at.file}:{at.pos}, {when}" + (f", {at.gtid_set}" if at.gtid_set else "")
