"""Encode answers and errors of a change log for the stream between gateway and agent: JSON, split into parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from cdc.model.errors import Fatal, Retriable, TailorbirdError, UsageError
from cdc.model.schema import schema_from_json
from cdc.packed import packed, unpacked
from ingest.fleet.fleet_pb2 import FATAL, RETRIABLE, USAGE, Failure, Part
from ingest.records.capture_interfaces import Checkpoint, Recovered
from ingest.records.records import checkpoint_value, read_checkpoint

_PART = 512 * 1024  # bytes


def parts_of(answer: Any) -> Iterator[Part]:
    """Split an answer, as JSON, into messages of limited size; at least one."""
    content = orjson.dumps(answer, default=unpacked)
    for at in range(0, len(content), _PART):
        yield Part(content=content[at : at + _PART], last=at + _PART >= len(content))


def checkpoint_bytes(checkpoint: Checkpoint, source: str) -> bytes:
    """Encode a checkpoint as in the topic `…positions`, without end offsets: the gateway adds them."""
    return checkpoint_value(checkpoint, source, {})


def checkpoint_of(content: bytes) -> Checkpoint:
    """Decode a checkpoint; inverse of `checkpoint_bytes`."""
    return read_checkpoint(content)[0]


def recovered_json(found: Recovered, source: str) -> dict[str, Any]:
    """Return the committed state of a source as JSON."""
    at = found.checkpoint
    return {
        "checkpoint": None if at is None else checkpoint_bytes(at, source).decode(),
        "history": [list(one) for one in found.history],
        "schemas": [schema.to_json() for schema in found.schemas.values()],
        "behind": sorted(found.behind),
    }


def recovered_of(value: dict[str, Any]) -> Recovered:
    """Decode the committed state of a source; inverse of `recovered_json`."""
    schemas = [schema_from_json(one) for one in value["schemas"]]
    at = value["checkpoint"]
    return Recovered(
        checkpoint=None if at is None else checkpoint_of(at.encode()),
        history=tuple((key, content if content is None else packed(content)) for key, content in value["history"]),
        schemas={schema.table_id: schema for schema in schemas},
        behind=frozenset(value["behind"]),
    )


def failure_of(error: TailorbirdError) -> Failure:
    """Encode an error of the change log, so that the agent can raise the same error."""
    kind = FATAL if isinstance(error, Fatal) else USAGE if isinstance(error, UsageError) else RETRIABLE
    after = error.retry_after if isinstance(error, Retriable) else 0.0
    return Failure(kind=kind, message=error.message, hint=error.hint, retry_after=after)


def error_of(failure: Failure) -> TailorbirdError:
    """Decode an error; inverse of `failure_of`."""
    if failure.kind == FATAL:
        return Fatal(failure.message, failure.hint)
    if failure.kind == USAGE:
        return UsageError(failure.message, failure.hint)
    return Retriable(failure.message, failure.hint, retry_after=failure.retry_after or 1.0)
