"""JSON objects in compressed form, for thousands of definitions of which few are read."""

from __future__ import annotations

import zlib
from collections.abc import ItemsView, Iterator, Mapping
from typing import Any

import orjson


class PackedJson(Mapping[str, Any]):
    """An immutable JSON object that is held compressed. Equal to any mapping with the same items.

    Each access decodes it again: call `unpacked` once instead, if you need more than one field.
    """

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        """Pack the bytes of a JSON object; they are not checked."""
        self._content = zlib.compress(content, 1)

    def unpacked(self) -> dict[str, Any]:
        """Return the object."""
        found: dict[str, Any] = orjson.loads(zlib.decompress(self._content))
        return found

    def content(self) -> bytes:
        """Return the bytes of the object."""
        return zlib.decompress(self._content)

    def __getitem__(self, key: str) -> Any:
        return self.unpacked()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.unpacked())

    def __len__(self) -> int:
        return len(self.unpacked())

    def items(self) -> ItemsView[str, Any]:
        """Return the fields and their values."""
        return self.unpacked().items()

    def __repr__(self) -> str:
        return f"PackedJson({self.unpacked()!r})"

    __hash__ = None  # type: ignore[assignment]  # like any mapping: its values need not be hashable


def packed(value: Mapping[str, Any]) -> PackedJson:
    """Return a JSON object as PackedJson: itself if it is one."""
    return value if isinstance(value, PackedJson) else PackedJson(orjson.dumps(value))


def unpacked(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object as a dict: itself if it is one."""
    if isinstance(value, PackedJson):
        return value.unpacked()
    return value if isinstance(value, dict) else dict(value)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as bytes, without decoding it if it is a PackedJson."""
    return value.content() if isinstance(value, PackedJson) else orjson.dumps(value)
