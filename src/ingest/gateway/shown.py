"""Content of commands for the audit log, and the state of sources as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from cdc.model.errors import UsageError
from ingest.fleet.desired import DesiredSource
from ingest.fleet.state import FleetState

_LONGEST = 600 * 1024  # bytes of a command's content in its audit line


def audited(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a command's content for the audit log. If it is long, each of its values is replaced by the length of the
    whole content.

    Raises UsageError if the content is no JSON."""
    try:
        size = len(orjson.dumps(content))
    except TypeError as error:
        raise UsageError(f"cannot be stored: {error}"[:200], "use 64-bit numbers and UTF-8 texts") from error
    return content if size <= _LONGEST else dict.fromkeys(content, f"{size} bytes")


def running(state: FleetState, source: str, agent: str, epoch: int) -> dict[str, Any]:
    """Return what an agent reports of a source that it captures at an epoch."""
    report = state.reported.get((agent, source))
    if report is None or report.epoch != epoch:
        return {"source": source, "epoch": epoch, "status": "applying", "reason": "no report yet"}
    shown = {name: value for name, value in asdict(report).items() if name not in ("agent", "source")}
    return {"source": source, **shown}


def version_shown(one: DesiredSource, *, short: bool = False) -> dict[str, Any]:
    """Return a version of a source's configuration; with `short` without the configuration."""
    shown = {"source": one.source, "version": one.version, "by": one.by, "at_ms": one.at_ms, "of": one.of}
    return shown if short else {**shown, "spec": None if one.spec is None else one.spec.to_json()}
