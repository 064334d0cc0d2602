"""Keep the outbox of webhooks in `TAILORBIRD_HOME/webhooks`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from cdc.model.errors import Fatal
from cdc.process.file_private import create_private, private_folder
from tailorbird.notify.outbox import Outbox, outbox_of


def load_outbox(folder: Path, topology: str, hooks: Iterable[str]) -> Outbox:
    """Return the stored outbox; an empty one if there is none. Raises Fatal if the file cannot be read."""
    file = _file(folder, topology)
    try:
        return outbox_of(topology, json.loads(file.read_text(encoding="utf-8")), hooks)
    except FileNotFoundError:
        return outbox_of(topology, None, hooks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fatal(f"{file}: {error!r}", "remove it: events that it contains are not sent") from error


def store_outbox(folder: Path, outbox: Outbox) -> None:
    """Store the outbox atomically. Raises OSError."""
    file = _file(folder, outbox.topology)
    private_folder(file.parent)
    fresh = file.with_suffix(".new")
    with create_private(fresh) as stream:
        json.dump(outbox.to_json(), stream)
    fresh.replace(file)


def _file(folder: Path, topology: str) -> Path:
    return folder / "webhooks" / f"{topology}.json"
