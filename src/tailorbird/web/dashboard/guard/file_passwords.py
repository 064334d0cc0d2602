"""Read the password file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cdc.grammar.exposed import exposes
from cdc.model.errors import UsageError
from tailorbird.web.dashboard.guard.passwords import read_passwords


def load_passwords(file: str) -> Mapping[str, str]:
    """Return password hashes by user name.

    Raises UsageError if the file cannot be read, is not a password file, or can be read by other users."""
    path = Path(file)
    try:
        status, text = path.stat(), path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file}: {why}", "lines `name:hash`, as tailorbird password NAME writes them") from error
    if exposes(status.st_mode, owner=status.st_uid, user=os.geteuid()):
        raise UsageError(f"{file} is readable by other users", f"chmod 600 {file}")
    return read_passwords(text, file=file)
