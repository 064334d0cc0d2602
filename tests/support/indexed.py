"""A model of a table and its index: a join that writes batches, replication with a lag, and a Solr that commits later.
Each step is one event, and any event may happen between two actions of a reader.

The model keeps the guarantees of the real servers. A batch's timestamp is known before its first write; deletes have
this timestamp, puts the next one. An interrupted batch is written again under its timestamp, and its barrier comes
last. Edits are replicated in order. Of two writes of a document the strictly greater version wins. Queries see the
state of the last commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from indexer.index.mapping import Document
from indexer.index.processor import RefusedDocument
from tailorbird.verify.index.index_stage import RowDocument


class Edit(NamedTuple):
    """A put (`text`), a delete (None), or a barrier, whose key is empty."""

    key: str
    timestamp: int
    text: str | None

    @property
    def version(self) -> int:
        return 2 * self.timestamp + (self.text is None)


class Model:
    """Everything between the join and the index; `keys` are those that the traffic changes."""

    def __init__(self, random: Random, keys: Sequence[str], *, busy: bool = True) -> None:
        self.random, self.keys, self.busy = random, list(keys), busy
        self.table: dict[str, Edit] = {}
        self.log: list[Edit] = []
        self.shipped = 0
        self.held: dict[str, Document] = {}  # in Solr, tombstones included
        self.held_barrier = self.shown_barrier = 0
        self.shown: dict[str, Document] = {}
        self.timestamp = self.clock = 1000
        self.version = 0
        self.batch: list[Edit] = []
        self.left: list[Edit] = []

    def step(self) -> None:
        """Let one random event happen."""
        self.clock += self.random.randrange(3)
        kind = self.random.random()
        if kind < 0.45 and (self.busy or self.left):
            self._join()
        elif kind < 0.9:
            self.ship()
        else:
            self.commit()

    def steps(self, most: int = 3) -> None:
        """Let some events happen."""
        for _ in range(self.random.randrange(most + 1)):
            self.step()

    def settle(self) -> None:
        """Start nothing new, and finish everything that has started."""
        self.busy = False
        while self.left:
            self._join()
        while self.shipped < len(self.log):
            self.ship()
        self.commit()

    def _join(self) -> None:
        if not self.left:
            self.timestamp = max(self.clock, self.timestamp + 2)
            some = self.random.sample(self.keys, min(len(self.keys), self.random.randrange(5)))
            rows = [(key, self.random.choice([None, "a", "b"])) for key in some]
            gone = [Edit(key, self.timestamp, None) for key, text in rows if text is None]
            made = [Edit(key, self.timestamp + 1, text) for key, text in rows if text is not None]
            self.batch = self.left = [*gone, *made, Edit("", self.timestamp, None)]
            return
        if self.random.random() < 0.05:
            self.left = self.batch  # the driver died: the batch is written again
            return
        edit, self.left = self.left[0], self.left[1:]
        self.write(edit)

    def write(self, edit: Edit) -> None:
        """Write an edit to HBase that will be replicated."""
        self.log.append(edit)
        if edit.key:
            self.store(edit)

    def store(self, edit: Edit) -> None:
        """Write an edit to HBase that is not replicated."""
        known = self.table.get(edit.key)
        if edit.text is None:
            if known is not None and known.timestamp <= edit.timestamp:
                del self.table[edit.key]
        elif known is None or known.timestamp <= edit.timestamp:
            self.table[edit.key] = edit

    def ship(self) -> None:
        """Replicate the next edit to Solr, with its version fence."""
        if self.shipped == len(self.log):
            return
        edit = self.log[self.shipped]
        self.shipped += 1
        if not edit.key:
            self.held_barrier = max(self.held_barrier, edit.timestamp)
            return
        held = self.held.get(edit.key)
        if held is None or edit.version > held["_fence"]:  # type: ignore[operator]  # both are int
            self.hold(edit.key, tombstone(edit) if edit.text is None else document(edit))

    def hold(self, key: str, made: Document) -> None:
        """Store a document in Solr."""
        self.version += 1
        self.held[key] = {**made, "_version_": self.version}

    def commit(self) -> None:
        """Commit: queries see all documents in Solr."""
        self.shown = {key: compared(made) for key, made in self.held.items() if "text" in made}
        self.shown_barrier = self.held_barrier


def document(edit: Edit) -> Document:
    """Return the document that the indexer makes of a row."""
    assert edit.text is not None
    return {"_id": edit.key, "_fence": edit.version, "_kind": "row", "text": edit.text}


def tombstone(edit: Edit) -> Document:
    """Return the tombstone that a delete leaves."""
    return {"_id": edit.key, "_fence": edit.version}


def compared(made: Document) -> Document:
    """Return a document without Solr's own fields."""
    return {name: value for name, value in made.items() if name != "_version_"}


class Made(NamedTuple):
    document: Document | None
    reason: str = ""


class ModelRows:
    """The table of a model: between any two rows that are read, events happen."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def scan(self) -> Iterator[tuple[str, RowDocument]]:
        last = ""
        while True:
            self._model.steps()
            following = min((key for key in self._model.table if key > last), default=None)
            if following is None:
                return
            last = following
            yield following, _seen(self._model.table[following])

    def versions(self) -> Iterator[tuple[str, int]]:
        return ((key, row.version) for key, row in self.scan())

    def rows(self, ids: Sequence[str]) -> Mapping[str, RowDocument]:
        found = {}
        for key in ids:
            self._model.steps()
            if key in self._model.table:
                found[key] = _seen(self._model.table[key])
        return found

    def made(self, ids: Sequence[str]) -> Mapping[str, Made]:
        return {key: Made(row.document) for key, row in self.rows(ids).items()}

    def written(self) -> int:
        self._model.steps()
        return self._model.timestamp


class ModelShown:
    """The index of a model, as queries see it; with `patient` False it does not wait for cuts, as a reader must."""

    def __init__(self, model: Model, *, patient: bool = True) -> None:
        self._model, self._patient = model, patient

    def scan(self) -> Iterator[tuple[str, Document]]:
        last = ""
        while True:
            self._model.steps()
            following = min((key for key in self._model.shown if key > last), default=None)
            if following is None:
                return
            last = following
            yield following, self._model.shown[following]

    def versions(self) -> Iterator[tuple[str, int]]:
        return ((key, int(made["_fence"])) for key, made in self.scan())  # type: ignore[arg-type]  # an int

    def documents(self, ids: Sequence[str]) -> Mapping[str, Document]:
        found = {}
        for key in ids:
            self._model.steps()
            if key in self._model.shown:
                found[key] = self._model.shown[key]
        return found

    def visible(self) -> int | None:
        return self._model.shown_barrier or None

    def wait(self, timestamp: int) -> bool:
        for _ in range(1000 if self._patient else 0):
            if self._model.shown_barrier >= timestamp:
                return True
            self._model.step()
        return not self._patient


class ModelCollection:
    """Solr's conditional writes, between which events happen."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        self._model.steps()
        held = self._model.held
        return {key: int(held[key]["_version_"]) for key in keys if key in held}  # type: ignore[arg-type]  # an int

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]:
        conflicts = set()
        for made in documents:
            self._model.steps()
            key = str(made["_id"])
            held = self._model.held.get(key)
            if made["_version_"] == (-1 if held is None else held["_version_"]):
                self._model.hold(key, made)
            else:
                conflicts.add(key)
        return conflicts, []


def _seen(edit: Edit) -> RowDocument:
    return RowDocument(edit.version, document(edit))
