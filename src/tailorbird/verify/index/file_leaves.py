"""Store the leaves of an index between two comparisons, in a file in the topology's folder.

If the file is deleted, the next run with `--changed-since last` compares all rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from cdc.merkle.tree import Digest
from cdc.process.file_private import create_private, private_folder
from tailorbird.verify.index.index_leaves import IndexLeaf, IndexLeaves

FORMAT = 2

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
        except (OSError, ValueError, KeyError, TypeError) as error:
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
            log.warning(
                "leaves_not_stored", path=str(self._file), reason=str(error), effect="the next run compares all rows"
            )
            self.forget()

    def _write(self, leaves: IndexLeaves) -> None:
        private_folder(self._file.parent)
        content = {
            "format": FORMAT,
            "cut": leaves.cut,
            "newest": leaves.newest,
            "identity": dict(leaves.identity),
            "store_files": {name: list(files) for name, files in leaves.store_files.items()},
            "leaves": [
                [leaf.start, leaf.digest.count, f"{leaf.digest.bits:x}", leaf.versions, leaf.open]
                for leaf in leaves.leaves
            ],
        }
        new = self._file.with_suffix(f".{os.getpid()}.new")
        try:
            with create_private(new) as stream:
                json.dump(content, stream, separators=(",", ":"))
            os.replace(new, self._file)
        except OSError:
            _deleted(new)
            raise

    def forget(self) -> None:
        """Delete the stored leaves. If that fails, a warning has the path."""
        _deleted(self._file)


def _deleted(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:  # the comparison itself is complete
        remedy = "delete the file, or give its folder to the user that runs `tailorbird`"
        log.warning("leaves_not_deleted", path=str(file), reason=str(error), remedy=remedy)


def _read(found: dict[str, object]) -> IndexLeaves:
    leaves, files, identity = found["leaves"], found["store_files"], found["identity"]
    cut, newest = found["cut"], found["newest"]
    if not (isinstance(leaves, list) and leaves and isinstance(files, dict) and isinstance(identity, dict)):
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
        store_files={str(name): tuple(map(str, some)) for name, some in files.items()},
        identity={str(name): str(value) for name, value in identity.items()},
    )
