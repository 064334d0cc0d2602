"""The difference between two checkpoints of a session, which is what an agent sends to its gateway.

State by table (`MAPS`) can have an entry per table; only changed entries are sent. Other state is sent whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cdc.formats.position_records import CHANGES, as_map, changed_state
from cdc.persistent import changed_keys
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.records import checkpoint_value, read_checkpoint

MAPS = ("snapshots", "partial", "watched", "left_out", "exact")


def changes_of(before: Checkpoint, after: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose state contains what changed since the one before; its size depends on the changes."""
    changes: dict[str, Any] = {}
    for name in MAPS:
        old, new = as_map(before.state.get(name, {})), as_map(after.state.get(name, {}))
        keys = changed_keys(old, new)
        put = {key: new[key] for key in keys if key in new and old.get(key) != new[key]}
        gone = [key for key in keys if key not in new]
        if name in after.state:
            changes[name] = {"put": put, "gone": gone}
    state = {name: value for name, value in after.state.items() if name not in MAPS}
    return replace(after, state={**state, CHANGES: changes})


def changes_bytes(before: Checkpoint, after: Checkpoint, source: str) -> bytes:
    """Encode a checkpoint so that `changed_checkpoint` can restore it from the one before."""
    return checkpoint_value(changes_of(before, after), source, {})


def changed_checkpoint(before: Checkpoint, content: bytes) -> Checkpoint:
    """Decode a checkpoint; inverse of `changes_bytes`. Raises LookupError, TypeError or ValueError if it is
    malformed."""
    after = read_checkpoint(content)[0]
    return replace(after, state=changed_state(before.state, after.state))


def split(content: bytes, size: int) -> list[bytes]:
    """Return the content in parts of at most `size` bytes; at least one."""
    return [content[at : at + size] for at in range(0, max(1, len(content)), size)]
