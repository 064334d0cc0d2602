"""Search a change topic for the images of some rows: the current image of each, and images that were never retracted.

A consumer that stores rows by image, such as a group, removes an image when a later record of the row has it as its
`before`. If no record did so, the image is *stale*: the consumer keeps it.
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
    """Images of one key in a topic. `live` is the current image (None: no row), `number` its sequence number.

    `ended` is an image that a marker removed without a delete, and its sequence number. `images` are all images that no
    record retracted yet.
    """

    partition: int
    live: Image | None = None
    number: int = 0
    ended: tuple[Image, int] | None = None
    images: dict[bytes, Image] = field(default_factory=dict)

    def see(self, change: Mapping[str, Any]) -> None:
        """Process the next record of the key."""
        before, after = change["before"], change["after"]
        if before is not None:
            self.images.pop(same(before), None)
        if after is not None:
            self.images[same(after)] = after
        self.live, self.number = after, change["source"]["sequence"]

    def marked(self, number: int) -> None:
        """Process a marker: it removes rows with a smaller sequence number, and all stale images."""
        if self.number < number:
            if self.live is not None:
                self.ended = self.live, self.number
            self.live = None
        self.images = {} if self.live is None else {same(self.live): self.live}

    @property
    def stale(self) -> list[Image]:
        """Return the images that are not current and that no record retracted."""
        live = None if self.live is None else same(self.live)
        return [image for known, image in self.images.items() if known != live]


class EndedRow(NamedTuple):
    """A child row that a marker removed: its image, its image after the parent's change (None: deleted), its sequence
    number.

    No delete was published for it, and the change may have cascaded to other tables.
    """

    before: Image
    after: Image | None
    number: int


class Search:
    """A search through a topic for some keys, and for rows that have, or had, wanted values.

    `wanted` are child rows of changed parents: columns and their values before the change. The topic's reader calls
    `see` for every record from the offsets `begin` on, in the order of each partition. At the end it sets `begin` to
    the end offsets and `done` to True, or it sets `failed`. `found` is the result by key. If more than `most` keys
    match, `full` is set, and the result is incomplete.
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
        """Prepare another pass from the previous end offsets on, for these keys only."""
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
        """Drop a key that is not searched for, if none of its images has wanted values."""
        if key not in self._keys and not any(
            one for image in self.found[key].images.values() for one in self._matching(image)
        ):
            del self.found[key]

    def _matching(self, image: Mapping[str, Any]) -> Iterator[ChangedChildren]:
        for columns, values in self._wanted.items():
            yield from values.get(tuple(alike(image.get(name)) for name in columns), ())

    def concerned(self, key_columns: tuple[str, ...]) -> dict[bytes, Image]:
        """Return the keys of all rows that have an image with wanted values: key as JSON → key.

        If the parent's change alters key columns of a row, its new key is returned, too.
        """
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
