"""What a log answers, as JSON that passes a stream in parts, and its failures; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from cdc.model.errors import Fatal, Retriable, TailorbirdError, UsageError
from cdc.model.schema import schema_from_json
from ingest.fleet.fleet_pb2 import FATAL, RETRIABLE, USAGE, Failure, Part
from ingest.records.capture_interfaces import Checkpoint, Recovered
from ingest.records.records import checkpoint_value, read_checkpoint

_PART = 512 * 1024  # bytes


def parts_of(answer: Any) -> Iterator[Part]:
    """An answer, cut; at least one part."""
    content = orjson.dumps(answer)
    for at in range(0, len(content), _PART):
        yield Part(content=content[at : at + _PART], last=at + _PART >= len(content))


def checkpoint_bytes(checkpoint: Checkpoint, source: str) -> bytes:
    """A checkpoint as it goes over the wire: as in `…positions`, where the gateway adds the offsets."""
    return checkpoint_value(checkpoint, source, {})


def checkpoint_of(content: bytes) -> Checkpoint:
    """Inverse of `checkpoint_bytes`."""
    return read_checkpoint(content)[0]


def recovered_json(found: Recovered, source: str) -> dict[str, Any]:
    """What is committed of a source, as JSON."""
    at = found.checkpoint
    return {
        "checkpoint": None if at is None else checkpoint_bytes(at, source).decode(),
        "history": [list(one) for one in found.history],
        "schemas": [schema.to_json() for schema in found.schemas.values()],
        "behind": sorted(found.behind),
    }


def recovered_of(reported: dict[str, Any]) -> Recovered:
    """Inverse of `recovered_json`."""
    schemas = [schema_from_json(one) for one in reported["schemas"]]
    at = reported["checkpoint"]
    return Recovered(
        checkpoint=None if at is None else checkpoint_of(at.encode()),
        history=tuple((key, value) for key, value in reported["history"]),
        schemas={schema.table_id: schema for schema in schemas},
        behind=frozenset(reported["behind"]),
    )


def failure_of(error: TailorbirdError) -> Failure:
    """An error of the log's, as the other end is to raise it."""
    kind = FATAL if isinstance(error, Fatal) else USAGE if isinstance(error, UsageError) else RETRIABLE
    after = error.retry_after if isinstance(error, Retriable) else 0.0
    return Failure(kind=kind, message=error.message, hint=error.hint, retry_after=after)


def error_of(failure: Failure) -> TailorbirdError:
    """Inverse of `failure_of`."""
    if failure.kind == FATAL:
        return Fatal(failure.message, failure.hint)
    if failure.kind == USAGE:
        return UsageError(failure.message, failure.hint)
    return Retriable(failure.message, failure.hint, retry_after=failure.retry_after or 1.0)
