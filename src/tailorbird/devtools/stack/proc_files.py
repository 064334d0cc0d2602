"""Handle the files of a stack: configuration, Solr's configsets, logs, and the removal of the data folder."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from cdc.model.errors import UsageError

CONFIGSET = "tailorbird"

# Only a folder that contains this file is ever removed: TAILORBIRD_HOME=/home/me must not delete anybody's home.
_MARK = "this-folder-belongs-to-tailorbird"
_DEFAULT_NAME = ".tailorbird"


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Context manager: turn a full disk or a missing permission into a UsageError with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UsageError(f"the disk of {folder} is full", "free some space, or choose another folder") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            where = error.filename or folder
            raise UsageError(f"no permission to write {where}", "choose another folder with TAILORBIRD_HOME") from error
        raise


def check_space(folder: Path, need_mib: int) -> None:
    """Raise UsageError if the disk of a folder has less than `need_mib` MiB free."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free // (1024 * 1024)
    if free < need_mib:
        raise UsageError(
            f"only {free} MiB are free for {folder}, {need_mib} MiB are needed",
            "free some space, or choose another folder with TAILORBIRD_HOME (data) or TAILORBIRD_CACHE (downloads)",
        )


def mark_home(home: Path) -> None:
    """Create the data folder with a marker file. Raises UsageError if the folder contains other files,
    unless it has the default name."""
    mark = home / _MARK
    if mark.exists():
        return
    if home.name != _DEFAULT_NAME and home.is_dir() and any(home.iterdir()):
        raise UsageError(
            f"{home} contains files that are not of this stack", "choose an empty folder with TAILORBIRD_HOME"
        )
    home.mkdir(parents=True, exist_ok=True)
    mark.touch()


def purge_home(home: Path) -> None:
    """Remove the data folder if it has the marker file. The folder of another stack inside it is kept."""
    if not (home / _MARK).exists():
        return
    # the marker is removed last, so that a killed purge can be repeated
    for entry in home.iterdir():
        if entry.name == _MARK or (entry / _MARK).exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (home / _MARK).unlink()
    if not any(home.iterdir()):
        home.rmdir()


def write_file(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


def set_aside(log: Path) -> None:
    """Rename a log, so that the next start writes a new one. The previous log is kept next to it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_name(f"{log.name}.previous"))


def read_log(path: Path, limit: int = 1024 * 1024) -> str:
    """Return the end of a log, at most `limit` bytes. Empty if there is no log."""
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - limit))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""


def install_configsets(target: Path) -> None:
    """Copy the indexer's configset to the folder that Solr reads, if it has changed since the last copy.

    Otherwise the copy is kept, because Solr adds the fields of clients to its copy."""
    with (
        as_file(files("indexer.solr") / "configset") as own,
        as_file(files("tailorbird.devtools.stack") / "files" / "configset") as plain,
    ):
        source = own if (own / "conf" / "solrconfig.xml").is_file() else plain
        contents = {path.relative_to(source): path.read_bytes() for path in sorted(source.rglob("*")) if path.is_file()}
    digest = hashlib.sha256(repr(sorted((str(name), data) for name, data in contents.items())).encode()).hexdigest()
    installed = target / f"{CONFIGSET}.sha256"
    if installed.exists() and installed.read_text() == digest:
        return
    fresh = target / f"{CONFIGSET}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    for name, data in contents.items():
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).write_bytes(data)
    shutil.rmtree(target / CONFIGSET, ignore_errors=True)
    fresh.rename(target / CONFIGSET)
    write_file(installed, digest)
