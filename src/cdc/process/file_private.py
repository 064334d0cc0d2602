"""Folders and files with data, which only their owner may read. A full disk is an expected error."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cdc.model.errors import DiskFull

FULL = (errno.ENOSPC, errno.EDQUOT)
FOLDER, FILE = 0o700, 0o600


def private_folder(folder: Path) -> None:
    """Create a folder with mode 0700, and give an existing one this mode. Raises OSError."""
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(FOLDER)


def create_private(file: Path) -> TextIO:
    """Open a file of mode 0600 for writing UTF-8 text; an existing one is emptied. Raises OSError."""
    stream = os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, FILE), "w", encoding="utf-8")
    os.fchmod(stream.fileno(), FILE)
    return stream


@contextmanager
def full_disk_named(folder: Path) -> Iterator[None]:
    """Context manager: turn the error of a full disk into DiskFull. It names the file, or else `folder`: where this
    process writes."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskFull(error.filename or folder) from error
