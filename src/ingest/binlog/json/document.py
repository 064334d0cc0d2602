"""Generate decoders for whole JSON documents: one function for each common shape of a column's documents.

A function is compiled from an example document. Keys are constants, every container is one struct call, and guards
compare keys, counts and types. A document that fails the guards goes to the next function, and finally to `jsonb`. A
column has only a few functions, and none if its documents have nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from ingest.binlog.format.packed import I64, U16, U32, U64
from ingest.binlog.json.jsonb import LITERALS, decode_json, value_at
from ingest.binlog.json.layout import MISS, JsonLayouts

MAX_FUNCTIONS: Final = 6
MAX_VALUES: Final = 200
_MAX_DEPTH: Final = 12
_MISSES_TO_COMPILE: Final = 4
_TRIAL: Final = 2000
_I32: Final = Struct("<i").unpack_from
_F64: Final = Struct("<d").unpack_from
_READERS: Final[dict[int, str]] = {
    0x07: "I32(b,p{c}+{o})[0]",
    0x08: "U32(b,p{c}+{o})[0]",
    0x09: "I64(b,p{c}+{o})[0]",
    0x0A: "U64(b,p{c}+{o})[0]",
    0x0B: "F64(b,p{c}+{o})[0]",
}
DocumentFunction = Callable[[bytes], Any]


class _Unfit(Exception):
    """Raised if a function for this document is not worth while."""


class _Compiler:
    """Generates the function for documents like an example.

    `inline_arrays` False leaves arrays to the general reader.
    """

    def __init__(self, document: bytes, inline_arrays: bool) -> None:
        self._document, self._inline_arrays = document, inline_arrays
        self._lines: list[str] = []
        self._env: dict[str, Any] = {
            "MISS": MISS, "LIT": LITERALS, "I32": _I32, "U32": U32, "I64": I64, "U64": U64, "F64": _F64,
            "VALUE": value_at,
        }  # fmt: skip
        self._containers = self._values = 0

    def compile(self) -> DocumentFunction:
        kind = self._document[0]
        if kind not in (0x00, 0x02):
            raise _Unfit
        self._lines.append(f"if b[0]!={kind}: return MISS")
        self._lines.append("N=len(b);p0=1")
        result = self._container(1, kind, 0)
        # Keys enter the source only through repr(); the rest is numbers and fixed words.
        source = "def document(b):\n" + "".join(f" {line}\n" for line in self._lines) + f" return {result}\n"
        exec(source, self._env)
        function: DocumentFunction = self._env["document"]
        return function

    def _container(self, at: int, kind: int, depth: int) -> str:
        data = self._document
        number = self._containers
        self._containers += 1
        count = U16(data, at)[0]
        self._values += count
        if depth > _MAX_DEPTH or self._values > MAX_VALUES:
            raise _Unfit
        names = [f"{number}_{i}" for i in range(count)]
        entries = "BH" * count
        if kind == 0x02:
            keys: list[str] | None = None
            form = "<H2x" + entries
            targets = [f"n{number}", *(f"t{n},o{n}" for n in names)]
            guards = [f"n{number}!={count}"]
            values_at = at + 4
        else:
            keys, text = self._keys(at, count)
            form = f"<H2x{4 * count}s{entries}{len(text)}s"
            targets = [f"n{number}", f"e{number}", *(f"t{n},o{n}" for n in names), f"k{number}"]
            head, body = self._env, data[at + 4 : at + 4 + 4 * count]
            head[f"E{number}"], head[f"K{number}"] = body, text
            guards = [f"n{number}!={count}", f"e{number}!=E{number}", f"k{number}!=K{number}"]
            values_at = at + 4 + 4 * count
        struct = Struct(form)
        self._env[f"S{number}"] = struct.unpack_from
        if depth == 0:
            self._lines.append(f"if N<{1 + struct.size}: return MISS")
        self._lines.append(f"{','.join(targets)},=S{number}(b,p{number})")
        types = [data[values_at + 3 * i] for i in range(count)]
        guards += [f"(t{n}!=5 and t{n}!=6)" if t in (5, 6) else f"t{n}!={t}" for n, t in zip(names, types, strict=True)]
        self._lines.append(f"if {' or '.join(guards)}: return MISS")
        values = []
        for i, (name, inner) in enumerate(zip(names, types, strict=True)):
            offset = U16(data, values_at + 3 * i + 1)[0]
            values.append(self._value(number, name, at + offset, inner, depth))
        if keys is None:
            return "[" + ",".join(values) + "]"
        return "{" + ",".join(f"{key!r}:{value}" for key, value in zip(keys, values, strict=True)) + "}"

    def _keys(self, at: int, count: int) -> tuple[list[str], bytes]:
        """Return the keys, and their bytes, which must follow the entries without gaps."""
        data, keys = self._document, []
        begin = end = at + 4 + 7 * count
        for i in range(count):
            offset, size = U16(data, at + 4 + 4 * i)[0], U16(data, at + 6 + 4 * i)[0]
            # check the length, because a slice would accept a damaged one
            if at + offset != end or end + size > len(data):
                raise _Unfit
            keys.append(data[end : end + size].decode())
            end += size
        if len(set(keys)) != count:
            raise _Unfit
        return keys, data[begin:end]

    def _value(self, number: int, name: str, at: int, kind: int, depth: int) -> str:
        if kind in (0x05, 0x06):
            return f"(o{name}^32768)-32768 if t{name}==5 else o{name}"
        if kind == 0x04:
            return f"LIT[o{name}&255]"
        if kind in _READERS:
            return _READERS[kind].format(c=number, o=f"o{name}")
        if kind == 0x0C:
            self._lines.append(f"q=p{number}+o{name};l=b[q];z=q+1+l")
            self._lines.append("if l>127 or z>N: return MISS")
            self._lines.append(f"v{name}=b[q+1:z].decode()")
            return f"v{name}"
        if kind == 0x00 or (kind == 0x02 and self._inline_arrays):
            inner = self._containers
            self._lines.append(f"p{inner}=p{number}+o{name}")
            return self._container(at, kind, depth + 1)
        return f"VALUE(b,p{number}+o{name},{kind})"


def document_reader() -> DocumentFunction:
    """Return a reader for one column: it returns what `decode_json` does, faster if documents are similar."""
    layouts, other = layout_reader()

    def read(document: bytes) -> Any:
        function = layouts.get(len(document))
        value = MISS if function is None else function(document, 0)
        return other(document) if value is MISS else value

    return read


def layout_reader() -> tuple[JsonLayouts, DocumentFunction]:
    """Return (layouts to try first, reader for all documents) for one column. The reader also trains the layouts."""
    layouts = JsonLayouts()
    functions: list[DocumentFunction] = []
    seen = misses = 0
    learning = True

    def slow(document: bytes) -> Any:
        nonlocal misses, learning
        if learning:
            misses += 1
            if not misses % _MISSES_TO_COMPILE and len(functions) < MAX_FUNCTIONS and document:
                try:
                    functions.append(_Compiler(document, inline_arrays=len(functions) < 2).compile())
                except (_Unfit, ValueError, IndexError, StructError):
                    learning = len(functions) > 0 or misses < _TRIAL
            elif misses > _TRIAL:
                # Guards that mostly fail cost more than they save.
                if misses * 2 > seen:
                    functions.clear()
                learning = False
        return decode_json(document)

    def read(document: bytes) -> Any:
        nonlocal seen
        seen += 1
        layouts.learn(document)
        try:
            for function in functions:
                value = function(document)
                if value is not MISS:
                    return value
        except (StructError, IndexError, KeyError):
            pass  # the document has another shape, or is damaged, which the general reader reports
        return slow(document)

    return layouts, read
