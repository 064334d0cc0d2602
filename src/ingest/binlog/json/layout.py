"""Decode JSON documents of a column that differ only in their values, by one struct call and a few comparisons.

Documents of the same shape and length have their values at the same offsets. The offsets of all values are taken from
one document. If every other byte (keys, types, offsets, lengths of strings) is the same in the next document, its
structure is the same, too. Strings that were equal in all documents so far count as structure. A new layout is first on
trial. Documents of a length with many layouts are left to the general reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from ingest.binlog.format.packed import U16
from ingest.binlog.json.jsonb import LITERALS, opaque_value

MISS: Final = object()
MAX_LAYOUTS: Final = 128
_MAX_BYTES: Final = 2048
_MAX_HOLES: Final = 120
_MAX_DEPTH: Final = 12
# Number of documents of a length before a layout is created, and number of documents that test it.
_WAIT: Final = 8
_TRIAL: Final = 128
# Number of misses after which a layout that has passed its trial is replaced.
_RENEW: Final = 512
_INLINE: Final = {0x04: ("B", 1), 0x05: ("h", 2), 0x06: ("H", 2)}
_NUMBERS: Final = {0x07: ("i", 4), 0x08: ("I", 4), 0x09: ("q", 8), 0x0A: ("Q", 8), 0x0B: ("d", 8)}
# Function from (bytes that contain a document, its offset) to the document's value, or MISS if the layout differs.
LayoutFunction = Callable[[bytes, int], Any]


class _Unfit(Exception):
    """Raised for a document without a layout that others could share."""


class _Layout:
    """Finds the offsets of all values in one document, and generates the decoder for similar documents.

    Strings that are equal in all `alike`, documents of the same length, are expected to be the same in the next one.
    """

    def __init__(self, document: bytes, alike: Sequence[bytes]) -> None:
        self._document, self._alike = document, alike
        self._taken = bytearray(len(document))
        self._holes: dict[int, tuple[str, int]] = {}

    def compile(self) -> LayoutFunction:
        document = self._document
        if not 2 < len(document) <= _MAX_BYTES:
            raise _Unfit
        self._fixed(0, 1)
        result = self._value(1, document[0], 0)
        if len(self._holes) > _MAX_HOLES:
            raise _Unfit
        env: dict[str, Any] = {"MISS": MISS, "LIT": LITERALS, "OPAQUE": opaque_value}
        form, names, guards, at = "<", [], [], 0
        for place, (kind, size) in sorted(self._holes.items()):
            if place > at:
                form += f"{place - at}s"
                names.append(f"k{at}")
                guards.append(f"k{at}!=K{at}")
                env[f"K{at}"] = document[at:place]
            form += kind
            names.append(f"v{place}")
            at = place + size
        if at < len(document):
            form += f"{len(document) - at}s"
            names.append(f"k{at}")
            guards.append(f"k{at}!=K{at}")
            env[f"K{at}"] = document[at:]
        env["S"] = Struct(form).unpack_from
        # Keys enter the source only through repr(); the rest is numbers and fixed words.
        exec(
            f"def layout(b,p):\n {','.join(names)},=S(b,p)\n"
            + (f" if {' or '.join(guards)}: return MISS\n" if guards else "")
            + f" return {result}\n",
            env,
        )
        function: LayoutFunction = env["layout"]
        return function

    def _fixed(self, at: int, size: int) -> None:
        """Mark bytes as part of the structure. Raises _Unfit if one of them is already used otherwise."""
        if at < 0 or at + size > len(self._taken) or any(self._taken[at : at + size]):
            raise _Unfit
        self._taken[at : at + size] = b"\1" * size

    def _hole(self, at: int, kind: str, size: int) -> str:
        if not size:
            return "b''"
        self._fixed(at, size)
        self._holes[at] = (kind, size)
        return f"v{at}"

    def _value(self, at: int, kind: int, depth: int) -> str:
        document = self._document
        if kind in _NUMBERS:
            return self._hole(at, *_NUMBERS[kind])
        if kind == 0x0C:
            size, begin = self._length(at)
            text = document[begin : begin + size]
            if self._alike and all(other[begin : begin + size] == text for other in self._alike):
                self._fixed(begin, size)
                return repr(text.decode())
            return f"{self._hole(begin, f'{size}s', size)}.decode()"
        if kind == 0x0F:
            self._fixed(at, 1)
            size, begin = self._length(at + 1)
            return f"OPAQUE({document[at]},{self._hole(begin, f'{size}s', size)})"
        if kind not in (0x00, 0x02) or depth > _MAX_DEPTH:
            raise _Unfit
        count = U16(document, at)[0]
        keys_size = 0 if kind else 4 * count
        entries = at + 4 + keys_size
        self._fixed(at, 4 + keys_size)
        values = [self._item(at, entries + 3 * i, depth) for i in range(count)]
        if kind:
            return "[" + ",".join(values) + "]"
        keys = [self._key(at, at + 4 + 4 * i) for i in range(count)]
        if len(set(keys)) != count:
            raise _Unfit
        return "{" + ",".join(f"{key!r}:{value}" for key, value in zip(keys, values, strict=True)) + "}"

    def _item(self, container: int, entry: int, depth: int) -> str:
        kind = self._document[entry]
        if kind in _INLINE:
            form, size = _INLINE[kind]
            self._fixed(entry, 1)
            name = self._hole(entry + 1, form, size)
            if size == 1:
                self._fixed(entry + 2, 1)
                return f"LIT[{name}]"
            return name
        self._fixed(entry, 3)
        return self._value(container + U16(self._document, entry + 1)[0], kind, depth + 1)

    def _key(self, container: int, entry: int) -> str:
        begin, size = container + U16(self._document, entry)[0], U16(self._document, entry + 2)[0]
        self._fixed(begin, size)
        return self._document[begin : begin + size].decode()

    def _length(self, at: int) -> tuple[int, int]:
        """Return the string length at offset `at`, and the offset after the length."""
        size = shift = 0
        begin = at
        while True:
            more = self._document[at]
            size |= (more & 127) << shift
            at, shift = at + 1, shift + 7
            if more < 128:
                break
            if shift > 14:
                raise _Unfit
        self._fixed(begin, at - begin)
        return size, at


class JsonLayouts(dict[int, LayoutFunction]):
    """Generated decoders for one JSON column, by the document's length in bytes.

    Each decodes documents of one layout, and returns `MISS` for others of its length. Pass documents that none could
    decode to `learn`: it generates a decoder once enough of them have the same length.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, int] = {}
        self._samples: dict[int, list[bytes]] = {}

    def learn(self, document: bytes) -> None:
        """Note a document that no decoder could read, and generate a decoder once there are enough similar ones."""
        size = len(document)
        seen = self._seen.get(size, 0) + 1
        if seen > _RENEW or size > _MAX_BYTES or (seen == 1 and len(self._seen) >= 4 * MAX_LAYOUTS):
            return
        self._seen[size] = seen
        if size in self and seen <= _RENEW - _WAIT:
            return
        samples = self._samples.setdefault(size, [])
        samples.append(document)
        if len(samples) == _WAIT:
            del self._samples[size]
            if size in self or len(self) < MAX_LAYOUTS:
                self._try(size, document, samples)

    def _try(self, size: int, document: bytes, alike: Sequence[bytes]) -> None:
        """Put a layout on trial. Strings that are equal in the documents `alike` are part of it."""
        self._seen[size] = _RENEW
        try:
            function = _Layout(document, alike).compile()
        except (_Unfit, ValueError, IndexError, StructError):
            self.pop(size, None)
            return
        calls = hits = 0

        def trial(data: bytes, at: int) -> Any:
            nonlocal calls, hits
            value = function(data, at)
            calls += 1
            hits += value is not MISS
            if calls == _TRIAL:
                if hits * 32 > calls * (30 if alike else 24):
                    self[size], self._seen[size] = function, 0
                elif alike:
                    self._try(size, document, ())
                else:
                    del self[size]
            return value

        self[size] = trial
