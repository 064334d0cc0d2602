"""The difference between two checkpoints of a session, which is what an agent sends to its gateway.

State by table (`MAPS`) can have an entry per table; only changed entries are sent. Other state is sent whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc.persistent import PersistentMap, changed_keys, persistent
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.records import checkpoint_value, read_checkpoint

MAPS = ("snapshots", "partial", "watched", "left_out")
_CHANGES = "changes"  # in the state: map → {"put": changed entries, "gone": removed keys}


def changes_bytes(before: Checkpoint, after: Checkpoint, source: str) -> bytes:
    """Encode a checkpoint so that `changed_checkpoint` can restore it from the one before. Its size depends on the
    changes."""
    changes: dict[str, Any] = {}
    for name in MAPS:
        old, new = as_map(before.state.get(name, {})), as_map(after.state.get(name, {}))
        keys = changed_keys(old, new)
        put = {key: new[key] for key in keys if key in new and old.get(key) != new[key]}
        gone = [key for key in keys if key not in new]
        if name in after.state:
            changes[name] = {"put": put, "gone": gone}
    state = {name: value for name, value in after.state.items() if name not in MAPS}
    return checkpoint_value(replace(after, state={**state, _CHANGES: changes}), source, {})


def changed_checkpoint(before: Checkpoint, content: bytes) -> Checkpoint:
    """Decode a checkpoint; inverse of `changes_bytes`. Raises LookupError, TypeError or ValueError if it is
    malformed."""
    after = read_checkpoint(content)[0]
    state = dict(after.state)
    changes: Mapping[str, Any] = state.pop(_CHANGES)
    for name, change in changes.items():
        found = as_map(before.state.get(name, {}))
        for key in change["gone"]:
            found = found.without(key)
        state[name] = found.updated(change["put"])
    return replace(after, state=state)


def as_map(value: Any) -> PersistentMap[str, Any]:
    """Return the state of all tables under one name; a list of names becomes a mapping of these names to True."""
    return persistent(value if isinstance(value, Mapping) else dict.fromkeys(value, True))


def split(content: bytes, size: int) -> list[bytes]:
    """Return the content in parts of at most `size` bytes; at least one."""
    return [content[at : at + size] for at in range(0, max(1, len(content)), size)]
