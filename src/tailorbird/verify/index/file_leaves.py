"""Store the leaves of an index between two comparisons, in a file in the topology's folder.

If the file is deleted, the next run with `--changed-since last` compares all rows."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from cdc.merkle.tree import Digest
from cdc.process.file_private import create_private, private_folder
from tailorbird.verify.index.index_leaves import IndexLeaf, IndexLeaves

FORMAT = 1

log = structlog.get_logger()


class LeavesFile:
    """The file `<home>/verify/<topology>.<index>.leaves.json`. Writes are atomic."""

    def __init__(self, home: Path, topology: str, index: str) -> None:
        self._file = home / "verify" / f"{topology}.{index}.leaves.json"

    def read(self, identity: Mapping[str, str]) -> IndexLeaves | str:
        """Return the stored leaves, or the reason why they cannot be used.

        `identity` must be that of the stored leaves: after a rebuild or a change of the table or index it is not. A
        file that cannot be read counts as missing, because all rows are compared then."""
        try:
            found = json.loads(self._file.read_text())
            if found["format"] != FORMAT:
                return "the last comparison was stored by another version"
            stored = _read(found)
        except FileNotFoundError:
            return "no earlier comparison is stored here"
        except (ValueError, KeyError, TypeError) as error:
            return f"{self._file} cannot be read: {error!r}"
        changed = [
            name for name in identity.keys() | stored.identity.keys() if stored.identity.get(name) != identity.get(name)
        ]
        return f"since the last comparison there is another {' and '.join(sorted(changed))}" if changed else stored

    def write(self, leaves: IndexLeaves) -> None:
        """Replace the stored leaves. If the file cannot be written, the next run compares all rows."""
        try:
            self._write(leaves)
        except OSError as error:  # the comparison itself is complete
            log.warning("leaves_not_stored", reason=str(error), effect="the next run compares all rows")
            self.forget()

    def _write(self, leaves: IndexLeaves) -> None:
        private_folder(self._file.parent)
        content = {
            "format": FORMAT,
            "cut": leaves.cut,
            "newest": leaves.newest,
            "identity": dict(leaves.identity),
            "compacted": dict(leaves.compacted),
            "leaves": [
                [leaf.start, leaf.digest.count, f"{leaf.digest.bits:x}", leaf.versions, leaf.open]
                for leaf in leaves.leaves
            ],
        }
        new = self._file.with_suffix(f".{os.getpid()}.new")
        with create_private(new) as stream:
            json.dump(content, stream, separators=(",", ":"))
        os.replace(new, self._file)

    def forget(self) -> None:
        """Delete the stored leaves."""
        with contextlib.suppress(FileNotFoundError):
            self._file.unlink()


def _read(found: dict[str, object]) -> IndexLeaves:
    leaves, compacted, identity = found["leaves"], found["compacted"], found["identity"]
    cut, newest = found["cut"], found["newest"]
    if not (isinstance(leaves, list) and leaves and isinstance(compacted, dict) and isinstance(identity, dict)):
        raise ValueError("no leaves")
    if not (isinstance(cut, int) and isinstance(newest, int)):
        raise ValueError("no cut")
    return IndexLeaves(
        leaves=tuple(
            IndexLeaf(start=start, digest=Digest(count, int(bits, 16)), versions=versions, open=open_)
            for start, count, bits, versions, open_ in leaves
        ),
        cut=cut,
        newest=newest,
        compacted={str(name): int(at) for name, at in compacted.items()},
        identity={str(name): str(value) for name, value in identity.items()},
    )
