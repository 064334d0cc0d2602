"""Generate decoders for JSON objects and arrays that have the same shape in many rows.

A shape is the keys of an object and the types of its values, or the types of an array's values. A frequent shape is
compiled into a function with the keys as constants and the offsets from one struct call. It does the same checks as the
loop in `jsonb`, which decodes all other values. The number of shapes is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from ingest.binlog.format.packed import I64, U16, U32, U64

ShapeFunction = Callable[[bytes, int, int, list[int]], Any]
MAX_SHAPES: Final = 2000
MAX_ITEMS: Final = 64
_WORTH_COMPILING: Final = 8
_F64: Final = Struct("<d").unpack_from
_I32: Final = Struct("<i").unpack_from

_SCALARS: Final[dict[int, str]] = {
    0x04: "LITERAL[{o}&255]",
    0x05: "({o}^32768)-32768",
    0x06: "{o}",
    0x07: "I32(b,p+{o})[0]",
    0x08: "U32(b,p+{o})[0]",
    0x09: "I64(b,p+{o})[0]",
    0x0A: "U64(b,p+{o})[0]",
    0x0B: "F64(b,p+{o})[0]",
}


class Shapes:
    """Cache of compiled shapes. `value(data, at, type, depth, budget)` decodes what a shape does not inline."""

    def __init__(self, value: Callable[..., Any], literals: dict[int, bool | None]) -> None:
        self._env: dict[str, Any] = {
            "VALUE": value,
            "LITERAL": literals,
            "I32": _I32,
            "U32": U32,
            "I64": I64,
            "U64": U64,
            "F64": _F64,
        }
        self._objects: dict[tuple[bytes, bytes, bytes], ShapeFunction | int] = {}
        self._arrays: dict[bytes, ShapeFunction | int] = {}

    def object(self, data: bytes, at: int, count: int) -> ShapeFunction | None:
        """Return the decoder of the small object at offset `at`; None if its shape is not compiled (yet)."""
        entries_end = at + 4 + 4 * count
        keys_begin = entries_end + 3 * count
        last = entries_end - 4
        keys_end = at + U16(data, last)[0] + U16(data, last + 2)[0]
        shape = (data[at + 4 : entries_end], data[entries_end:keys_begin:3], data[keys_begin:keys_end])
        found = self._objects.get(shape)
        if found.__class__ is not int and found is not None:
            return found  # type: ignore[return-value]  # not an int, so a function
        if self._due(self._objects, shape, found) and count <= MAX_ITEMS:
            keys = self._keys(shape, count)
            if keys is not None and len(set(keys)) == count:
                function = self._objects[shape] = self._compile(keys, shape[1], 4 + 4 * count)
                return function
        return None

    def array(self, data: bytes, at: int, count: int) -> ShapeFunction | None:
        """Return the decoder of the small array at offset `at`; None if its shape is not compiled (yet)."""
        types = data[at + 4 : at + 4 + 3 * count : 3]
        found = self._arrays.get(types)
        if found.__class__ is not int and found is not None:
            return found  # type: ignore[return-value]  # not an int, so a function
        if self._due(self._arrays, types, found) and len(types) == count <= MAX_ITEMS:
            function = self._arrays[types] = self._compile(None, types, 4)
            return function
        return None

    @staticmethod
    def _due(table: dict[Any, ShapeFunction | int], shape: Any, seen: Any) -> bool:
        if seen is None and len(table) >= MAX_SHAPES:
            # The table is full: clear it, so that shapes that never repeat do not keep frequent ones out.
            for rare in [key for key, value in table.items() if value.__class__ is int]:
                del table[rare]
            if len(table) >= MAX_SHAPES:
                return False
        table[shape] = (seen or 0) + 1
        return (seen or 0) + 1 >= _WORTH_COMPILING

    @staticmethod
    def _keys(shape: tuple[bytes, bytes, bytes], count: int) -> list[str] | None:
        """Return the keys of a shape; None if they do not follow one another without gaps, as the server writes
        them."""
        entries, types, text = shape
        keys: list[str] = []
        expected = 4 + 7 * count
        at = 0
        if len(types) != count or len(entries) != 4 * count:
            return None
        for place in range(0, 4 * count, 4):
            offset, size = U16(entries, place)[0], U16(entries, place + 2)[0]
            if offset != expected + at or at + size > len(text):
                return None
            keys.append(text[at : at + size].decode())
            at += size
        return keys

    def _compile(self, keys: list[str] | None, types: bytes, values_at: int) -> ShapeFunction:
        lines: list[str] = []
        values: list[str] = []
        checks: list[str] = []
        env = dict(self._env)
        env["HEAD"] = Struct("<" + "xH" * len(types)).unpack_from
        if types:
            lines.append("".join(f"o{i}," for i in range(len(types))) + f"=HEAD(b,p+{values_at})")
        for i, kind in enumerate(types):
            if kind == 0x0C:
                lines.append(f"q{i}=p+o{i}")
                lines.append(f"l=b[q{i}];e{i}=q{i}+1+l")
                lines.append(f"v{i}=b[q{i}+1:e{i}].decode() if l<128 else VALUE(b,q{i},12,d,g)")
                checks.append(f"e{i}>n")
                values.append(f"v{i}")
            elif kind in _SCALARS:
                values.append(_SCALARS[kind].format(o=f"o{i}"))
            else:
                values.append(f"VALUE(b,p+o{i},{kind},d,g)")
        # A long string does not end at e: only short ones are compared, and long ones check themselves.
        if checks:
            lines.append("n=len(b)")
            lines.append(
                f"if ({' or '.join(checks)}) and SHORT(b,{','.join(f'q{i}' for i, k in enumerate(types) if k == 12)}):"
            )
            lines.append(" raise ValueError('a JSON string runs past its document')")
            env["SHORT"] = _short_runs_past
        if keys is None:
            result = "[" + ",".join(values) + "]"
        else:
            result = "{" + ",".join(f"{key!r}:{value}" for key, value in zip(keys, values, strict=True)) + "}"
        source = "def shape(b,p,d,g):\n" + "".join(f" {line}\n" for line in lines) + f" return {result}\n"
        # Keys enter the source only through repr(); the rest is numbers and fixed words.
        exec(source, env)
        function: ShapeFunction = env["shape"]
        return function


def _short_runs_past(data: bytes, *places: int) -> bool:
    return any(data[at] < 128 and at + 1 + data[at] > len(data) for at in places)
