"""The target collections of an index: usually one, or two during a rebuild and while a former one is kept.

Every indexer process reads the targets before a batch and after it, and acknowledges the batch only if the epoch is
the same. So after a change, every acknowledged batch went to the new targets. A batch that began earlier is sent
again, which Solr's fence makes harmless. (This is a sequence lock in ZooKeeper.)"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from cdc.model.errors import Retriable
from indexer.index.mapping import Document, Field
from indexer.index.processor import Collection, RefusedDocument

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The collections that receive an index's documents, in posting order. Queries use the first.

    `epoch` increases with every change. While `changing`, names are being swapped and nothing may be posted."""

    epoch: int
    collections: tuple[str, ...]
    changing: bool = False

    def to_json(self) -> bytes:
        """Return the JSON that ZooKeeper stores. The inverse of `load_targets`."""
        value = {"format": FORMAT, "epoch": self.epoch, "collections": self.collections, "changing": self.changing}
        return json.dumps(value).encode()


def load_targets(stored: bytes) -> Targets:
    """Parse the JSON that `Targets.to_json` wrote. Raises KeyError or ValueError for other content."""
    value = orjson.loads(stored)
    if value["format"] != FORMAT:
        raise ValueError(f"targets of format {value['format']}, this version reads format {FORMAT}")
    return Targets(epoch=value["epoch"], collections=tuple(value["collections"]), changing=value["changing"])


class TargetStore(Protocol):
    """Stores the targets of one index (indexer.rebuild.zk_state). Reads are never stale.

    Raises Retriable while the store is unavailable."""

    def read(self) -> Targets: ...
    def write(self, targets: Targets) -> None: ...


def checked(store: TargetStore) -> Targets:
    """Return the current targets. Raises Retriable while they are changing."""
    targets = store.read()
    if targets.changing:
        raise Retriable("the index's collections are being swapped")
    return targets


class Fanout:
    """Several collections as one. A document is stored when all have stored it, and refused if one refuses it."""

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._collections = tuple(collections)

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        """Add the fields that any of the collections lacks. Return whether any was missing."""
        fields = list(wanted)
        added = [each.ensure_fields(fields) for each in self._collections]
        return any(added)

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        """Post to each in order, like `Collection.post`."""
        return self.begin(documents, backlog=backlog)()

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        """Post to all concurrently, like `Collection.begin`."""
        waits = [each.begin(documents, backlog=backlog) for each in self._collections]

        def wait() -> list[RefusedDocument]:
            refused: dict[int, RefusedDocument] = {}
            for each in waits:
                for found in each():
                    refused.setdefault(found.position, found)
            return [refused[position] for position in sorted(refused)]

        return wait
