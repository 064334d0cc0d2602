"""Which collections an index's documents go to: mostly one; two while one is rebuilt, or kept to go back to.

Every indexer process reads this before a batch and again behind it, and answers HBase only if both tell the same
epoch. So whoever changes it knows: a batch that is answered after the change went to the collections of the change. A
batch that began before is done again, which the fence makes harmless. (A sequence lock, in ZooKeeper.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cdc.model.errors import Retriable
from indexer.index.mapping import Document, Field
from indexer.index.processor import Collection, RefusedDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """`collections` in the order in which documents go to them, the one that queries see first.

    `epoch` grows with every change. While `changing`, the names are about to change their meaning: nothing may be
    posted.
    """

    epoch: int
    collections: tuple[str, ...]
    changing: bool = False

    def to_json(self) -> bytes:
        """Stored form; inverse of `load_targets`."""
        value = {"format": 1, "epoch": self.epoch, "collections": self.collections, "changing": self.changing}
        return json.dumps(value).encode()


def load_targets(stored: bytes) -> Targets:
    """Read the stored form; KeyError or ValueError when it is not one."""
    value = json.loads(stored)
    if value["format"] != 1:
        raise ValueError(f"targets of format {value['format']}, this version reads format 1")
    return Targets(epoch=value["epoch"], collections=tuple(value["collections"]), changing=value["changing"])


class TargetStore(Protocol):
    """Where the targets of one index are kept (indexer.rebuild.zk_state); never stale. Retriable while it is away."""

    def read(self) -> Targets: ...
    def write(self, targets: Targets) -> None: ...


def checked(store: TargetStore) -> Targets:
    """The targets to post to now; Retriable while they change."""
    targets = store.read()
    if targets.changing:
        raise Retriable("the index's collections are being swapped")
    return targets


class Fanout:
    """Several collections as one: a document is held when all hold it, and refused when one refuses it."""

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._collections = tuple(collections)

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        """Add the fields that any of them lacks; whether there were any."""
        fields = list(wanted)
        added = [each.ensure_fields(fields) for each in self._collections]
        return any(added)

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        """To each in order, as `Collection.post`."""
        return self.begin(documents, backlog=backlog)()

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        """To all at once, as `Collection.begin`."""
        waits = [each.begin(documents, backlog=backlog) for each in self._collections]

        def wait() -> list[RefusedDocument]:
            refused: dict[int, RefusedDocument] = {}
            for each in waits:
                for found in each():
                    refused.setdefault(found.position, found)
            return [refused[position] for position in sorted(refused)]

        return wait
