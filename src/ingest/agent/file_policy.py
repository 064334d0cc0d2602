"""Read the policy file of an agent from the disk of its host, again whenever it changes."""

from __future__ import annotations

import os
from pathlib import Path

from cdc.model.errors import TailorbirdError, UsageError
from ingest.agent.policy import Policy
from ingest.agent.policy_reader import read_policy

# inode, times of the last write and of the last change of its mode, and size; zeros for a file that does not exist
_Stamp = tuple[int, int, int, int]
_Stamps = dict[Path, _Stamp]


class PolicyFile:
    """A policy file, with the files that it includes. `policy` is the last valid content.

    `error` is why the present content is invalid; empty if it is valid. Raises TopologyError or UsageError (exit 2) if
    the file is missing or invalid when the object is created.
    """

    def __init__(self, file: str) -> None:
        self._file, self.error = file, ""
        self._seen: _Stamps = {}
        self._begun: _Stamps = {}  # state of each file before it was last read
        self.policy = self._read()
        self._applied: _Stamps = self._begun
        if not self._settle():
            self._seen = self._begun

    def changed(self, *, now: bool = False, again: bool = False) -> Policy | None:
        """Return the policy if its files have changed since it was last returned; None if they have not.

        A change counts when two calls have seen the same state, and reading did not change it, because half of a file
        could be a valid policy that allows more. `again`: read it even if nothing has changed. `now`: read it at once.
        Raises TopologyError or UsageError for an invalid one; `policy` and the next call are unaffected.
        """
        before, self._seen = self._seen, self._stamps()
        if not now and (self._seen != before or (self._seen == self._applied and not again)):
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
        """Note which state was read. Return whether no file has changed meanwhile; if one has, all are read again."""
        after = self._stamps()
        if after != self._begun or any(self._begun.get(file, stamp) != stamp for file, stamp in self._seen.items()):
            return False
        self._applied = self._seen = after
        return True

    def _read(self) -> Policy:
        self._begun = {Path(self._file): _stamp(Path(self._file))}
        return load_policy(self._file, self._begun)

    def _stamps(self) -> _Stamps:
        return {file: _stamp(file) for file in self._begun}


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError:  # reading it reports the error
        return 0, 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def load_policy(file: str, stamps: _Stamps | None = None) -> Policy:
    """Read the policy in `file`. Raises TopologyError or UsageError (exit 2) if it is missing, wrong, or not private.

    The path in `${file:path}` is relative to the policy's folder. The last newline of such a file is dropped. The
    state of each such file before it is read is added to `stamps`.
    """
    try:
        if Path(file).stat().st_mode & 0o022:
            raise UsageError(f"{file} can be changed by other users", f"chmod go-w {file}")
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{file}: {why}", "--policy policy.yml, as in docs/fleet.md") from error

    def content(path: str) -> str:
        found = Path(file).parent.joinpath(path)
        if stamps is not None:
            stamps.setdefault(found, _stamp(found))
        return found.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")

    return read_policy(text, file=file, environ=os.environ, content=content)
