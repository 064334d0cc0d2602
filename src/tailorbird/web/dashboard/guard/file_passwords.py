"""Read the password file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cdc.model.errors import UsageError
from tailorbird.web.dashboard.guard.passwords import read_passwords


def load_passwords(file: str) -> Mapping[str, str]:
    """Return password hashes by user name.

    Raises UsageError if the file cannot be read, is not a password file, or can be read by other users."""
    path = Path(file)
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file}: {why}", "lines `name:hash`, as tailorbird password NAME writes them") from error
    if mode & 0o077:
        raise UsageError(f"{file} is readable by other users", f"chmod 600 {file}")
    return read_passwords(text, file=file)
