"""Search command lines and files for the password of the secured Kafka."""

from __future__ import annotations

from pathlib import Path

PART = "s3cret"  # the one part of the password that no escaping changes


def not_on_command_lines(file: Path) -> None:
    """Check that no process has the password on its command line, while those of a topology's file run."""
    spoken = command_lines()
    assert any(str(file) in line for line in spoken), "the pipeline's processes are not among them"
    assert not [line for line in spoken if PART in line]


def in_secret_files_only(folder: Path) -> None:
    """Check that the password is in no log, plan or checkpoint of a folder: only in the topology's own file and in
    those that Java's clients read, which only their owner can read.
    """
    found = {path for path in folder.rglob("*") if path.is_file() and holds(path, PART.encode())}
    assert folder / "password" in found
    others = found - {folder / "password"}
    assert {path.parent for path in others} == {folder / "secrets"}, "not only where Java's clients read it"
    assert {path.stat().st_mode & 0o777 for path in others} == {0o600}


def command_lines() -> list[str]:
    """Return the command lines of every process of this machine."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has exited
            continue
    return found


def holds(file: Path, needle: bytes) -> bool:
    """Return whether a file contains a text, with one or two bytes per character."""
    try:
        content = file.read_bytes()
    except OSError:  # a file of a process that has just exited
        return False
    return needle in content or needle.decode().encode("utf-16-le") in content
