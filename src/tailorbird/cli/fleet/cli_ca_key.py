"""Find the passphrase of the authority's key: a file, the environment, or the terminal."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.model.errors import UsageError

if TYPE_CHECKING:
    from tailorbird.web.fleet.proc_ca_key import CaKey

SIGN = "TAILORBIRD_CA_SIGN_COMMAND"
_WAYS = "--passphrase-file FILE, TAILORBIRD_CA_PASSPHRASE, or a terminal"


def key_access(authority: Path, file: Path | None, command: str) -> CaKey:
    """Return the access to an existing authority's key. The terminal is asked only if the key is encrypted.

    Raises UsageError if the key is encrypted, and there is no passphrase."""
    from tailorbird.web.fleet.proc_ca_key import CaKey, is_encrypted

    if command:
        return CaKey(command=command)
    if not is_encrypted(authority):
        return CaKey()
    found = _given(file) or (getpass.getpass("Passphrase of the authority: ") if sys.stdin.isatty() else "")
    if not found:
        raise UsageError(f"the key in {authority} is encrypted, and there is no passphrase", _WAYS)
    return CaKey(passphrase=found)


def new_passphrase(file: Path | None) -> str:
    """Return the passphrase of a new authority. Raises UsageError if there is none, or a short one."""
    found = _given(file)
    if found:
        return _long_enough(found)
    if not sys.stdin.isatty():
        raise UsageError("no passphrase for the key of the authority", f"{_WAYS}; --no-passphrase leaves it plain")
    return typed_passphrase()


def typed_passphrase() -> str:
    """Return a new passphrase from the terminal, typed twice; without a terminal, a line of standard input.

    Raises UsageError if it is too short, or the two differ."""
    if not sys.stdin.isatty():
        return _long_enough(sys.stdin.readline().rstrip("\n"))
    found = getpass.getpass("New passphrase of the authority: ")
    if getpass.getpass("Repeat it: ") != found:
        raise UsageError("the two passphrases differ", "repeat the command")
    return _long_enough(found)


def _given(file: Path | None) -> str:
    from tailorbird.web.fleet.proc_ca_key import PASSPHRASE

    if file is None:
        return os.environ.get(PASSPHRASE, "")
    try:
        if file.stat().st_mode & 0o077:
            raise UsageError(f"{file} is accessible to other users", f"chmod 600 {file}")
        found = file.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", "--passphrase-file FILE with a passphrase in it") from error
    if not found:
        raise UsageError(f"{file} is empty", "--passphrase-file FILE with a passphrase in it")
    return found


def _long_enough(passphrase: str) -> str:
    from tailorbird.web.fleet.proc_ca_key import LEAST

    if len(passphrase) < LEAST:
        raise UsageError(f"the passphrase has {len(passphrase)} characters", f"use at least {LEAST}")
    return passphrase
