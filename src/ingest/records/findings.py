"""Collect a change topic's images of some rows: the newest of each, and older ones that were never retracted.

Readers that store rows by image retract an image when the next record of the row has it as its before image. An image
that no record retracted is stale: readers keep it until a record does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from cdc.model.naming import TRUNCATE_KEY
from ingest.events.foreign_keys import ChangedChildren, alike

Image = dict[str, Any]
_SORTED = orjson.OPT_SORT_KEYS


def same(image: Mapping[str, Any]) -> bytes:
    """Return bytes that are equal for equal images, whatever the order of their columns."""
    return orjson.dumps(image, option=_SORTED)


@dataclass(slots=True)
class KeyImages:
    """Images of one key. `live` is the row in the log (None: no row), `number` its sequence.

    `ended`: a row that a marker ended, and its sequence; no delete was published for it.
    """

    partition: int
    live: Image | None = None
    number: int = 0
    ended: tuple[Image, int] | None = None
    images: dict[bytes, Image] = field(default_factory=dict)

    def see(self, change: Mapping[str, Any]) -> None:
        """Add a record of the key."""
        before, after = change["before"], change["after"]
        if before is not None:
            self.images.pop(same(before), None)
        if after is not None:
            self.images[same(after)] = after
        self.live, self.number = after, change["source"]["sequence"]

    def marked(self, number: int) -> None:
        """Apply a marker: rows of smaller sequence are gone, and with them all images but the newest."""
        if self.number < number:
            if self.live is not None:
                self.ended = self.live, self.number
            self.live = None
        self.images = {} if self.live is None else {same(self.live): self.live}

    @property
    def stale(self) -> list[Image]:
        """Return the images that no record retracted."""
        live = None if self.live is None else same(self.live)
        return [image for known, image in self.images.items() if known != live]


class EndedRow(NamedTuple):
    """A searched child row that a marker ended: its image, its image after the parent's change (None: deleted), its
    sequence.

    No delete was published for it, and the change may have cascaded to other tables.
    """

    before: Image
    after: Image | None
    number: int


class Search:
    """Searches a topic from `begin` on for keys, and for the keys of rows with images of wanted values.

    The topic's reader shows every record to `see`, in each partition's order. Then it sets `begin` to its end offsets
    and `done`, or it sets `failed`. `most` limits the keys: beyond it, `full` is set and nothing more is kept.
    """

    def __init__(self, topic: str, keys: Iterable[bytes], wanted: Iterable[ChangedChildren], most: int) -> None:
        self.topic, self.begin = topic, dict[int, int]()
        self.done = self.full = self.given_up = False
        self.failed: BaseException | None = None
        self.found: dict[bytes, KeyImages] = {}
        self.vanished: list[EndedRow] = []
        self._keys, self._most = frozenset(keys), most
        self._wanted: dict[tuple[str, ...], dict[tuple[Any, ...], list[ChangedChildren]]] = {}
        for one in wanted:
            self._wanted.setdefault(one.columns, {}).setdefault(tuple(map(alike, one.old)), []).append(one)

    def again(self, keys: Iterable[bytes]) -> None:
        """Continue after the last end offsets, with these keys only."""
        self._keys, self._wanted, self.done = frozenset(keys), {}, False

    def see(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Process the next record."""
        if value is None or self.full:
            return
        if key == TRUNCATE_KEY:
            number = orjson.loads(value)["source"]["sequence"]
            for name in [name for name, found in self.found.items() if found.partition == partition]:
                self._ended(self.found[name], number)
                self.found[name].marked(number)
                self._forget(name)
            self.full |= len(self.vanished) > self._most
            return
        known = self.found.get(key)
        if known is None:
            if key not in self._keys:
                if not self._wanted:
                    return
                change = orjson.loads(value)
                if change["after"] is None or not any(self._matching(change["after"])):
                    return
            else:
                change = orjson.loads(value)
            if len(self.found) >= self._most:
                self.full = True
                return
            known = self.found[key] = KeyImages(partition)
        else:
            change = orjson.loads(value)
        known.see(change)
        self._forget(key)

    def _ended(self, found: KeyImages, number: int) -> None:
        if found.live is None or found.number >= number:
            return
        for one in self._matching(found.live):
            after = None if one.new is None else {**found.live, **dict(zip(one.columns, one.new, strict=True))}
            self.vanished.append(EndedRow(found.live, after, found.number))

    def _forget(self, key: bytes) -> None:
        """Drop a key that is not searched for and has no wanted image."""
        if key not in self._keys and not any(
            one for image in self.found[key].images.values() for one in self._matching(image)
        ):
            del self.found[key]

    def _matching(self, image: Mapping[str, Any]) -> Iterator[ChangedChildren]:
        for columns, values in self._wanted.items():
            yield from values.get(tuple(alike(image.get(name)) for name in columns), ())

    def concerned(self, key_columns: tuple[str, ...]) -> dict[bytes, Image]:
        """Return the keys of all rows with a wanted image, and their current keys if the change affects key columns."""
        keys: dict[bytes, Image] = {}
        for key, found in self.found.items():
            waiting = [image for image in found.images.values() if any(self._matching(image))]
            if waiting:
                keys[key] = orjson.loads(key)
            while waiting:
                image = waiting.pop()
                for one in self._matching(image):
                    if one.new is None or not set(one.columns) & set(key_columns):
                        continue
                    moved = {**image, **dict(zip(one.columns, one.new, strict=True))}
                    name = {column: moved[column] for column in key_columns}
                    if orjson.dumps(name) not in keys:
                        keys[orjson.dumps(name)] = name
                        waiting.append(moved)
        return keys
