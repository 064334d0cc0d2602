"""Provide a private folder for the Unix sockets between Spark's JVM and its Python workers."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

_NAME = "/.00000000-0000-0000-0000-000000000000.sock"
_LONGEST = 103  # bytes of a socket's path; Linux allows 107
_FOLDER = "spark.python.unix.domain.socket.dir"


def unix_sockets(scratch: Path) -> Mapping[str, str]:
    """Return settings with which Spark and its Python workers use Unix sockets; none if there is no private folder.

    Over TCP, each small batch waits 40 ms: the JVM sends a worker two short messages, and the kernel holds the second
    one back until the worker's side acknowledges the first, which it delays. Spark asks nobody for a secret on Unix
    sockets, so only this user may enter their folder. It is in the folder for temporary files, because the path of a
    socket must be short. Its name depends on `scratch`, so a process that was killed leaves at most one."""
    digest = hashlib.sha256(os.fsencode(scratch.absolute())).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"tailorbird-{os.getuid()}-{digest}"
    if len(os.fsencode(folder)) + len(_NAME) > _LONGEST or not _private(folder):
        return {}
    for left in folder.iterdir():
        left.unlink()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"spark.python.unix.domain.socket.enabled": "true", _FOLDER: str(folder)}


def _private(folder: Path) -> bool:
    """Return whether the folder could be created, or exists and is accessible to this user only."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()  # others may create a folder or link of this name
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    except OSError:
        return False
    return True
