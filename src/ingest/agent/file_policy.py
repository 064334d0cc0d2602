"""Read the policy file of an agent from the disk of its host, again whenever it changes."""

from __future__ import annotations

import os
from pathlib import Path

from cdc.model.errors import TailorbirdError, UsageError
from ingest.agent.policy import Policy
from ingest.agent.policy_reader import read_policy

_Stamp = tuple[tuple[str, int, int, int], ...]


class PolicyFile:
    """A policy file, with the files that it includes. `policy` is the last valid content.

    `error` is why the present content is invalid; empty if it is valid. Raises TopologyError or UsageError (exit 2) if
    the file is missing or invalid when the object is created.
    """

    def __init__(self, file: str) -> None:
        self._file, self.error = file, ""
        self._included = list[Path]()
        self._applied = self._seen = self._stamp()
        self.policy = self._read()
        self._applied = self._seen = self._stamp()

    def changed(self, *, now: bool = False) -> Policy | None:
        """Return the policy if its files have changed since it was last returned; None if they have not.

        A change counts when two calls have seen the same state, and reading did not change it, because half of a file
        could be a valid policy that allows more. `now`: read it at once, even if nothing has changed. Raises
        TopologyError or UsageError for an invalid one; `policy` and the next call are unaffected.
        """
        before, self._seen = self._seen, self._stamp()
        if not now and (self._seen == self._applied or self._seen != before):
            return None
        try:
            policy = self._read()
        except TailorbirdError as error:
            self._settle()
            self.error = str(error)
            raise
        if not self._settle() and not now:
            return None
        self.policy, self.error = policy, ""
        return policy

    def _settle(self) -> bool:
        """Note which state was read. Return whether the file has not changed meanwhile; if it has, it is read again."""
        after = self._stamp()
        if after[0] != self._seen[0]:
            return False
        self._applied = self._seen = after
        return True

    def _read(self) -> Policy:
        included = list[Path]()
        try:
            return load_policy(self._file, included)
        finally:
            self._included = included

    def _stamp(self) -> _Stamp:
        """Return name, inode, time and size of each file; zeros for one that does not exist."""
        return tuple(_stamp(file) for file in (Path(self._file), *self._included))


def _stamp(file: Path) -> tuple[str, int, int, int]:
    try:
        found = file.stat()
    except OSError:  # reading it reports the error
        return str(file), 0, 0, 0
    return str(file), found.st_ino, found.st_mtime_ns, found.st_size


def load_policy(file: str, included: list[Path] | None = None) -> Policy:
    """Read the policy in `file`. Raises TopologyError or UsageError (exit 2) if it is missing or wrong.

    The path in `${file:path}` is relative to the policy's folder. The last newline of such a file is dropped. These
    paths are appended to `included`.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file}: {why}", "--policy policy.yml, as in docs/fleet.md") from error

    def content(path: str) -> str:
        found = Path(file).parent.joinpath(path)
        if included is not None:
            included.append(found)
        return found.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")

    return read_policy(text, file=file, environ=os.environ, content=content)
