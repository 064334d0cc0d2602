"""Collect the source text of a generated row decoder."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from ingest.binlog.format.flavour import Flavour
from ingest.binlog.json.layout import JsonLayouts

RowFunction = Callable[[bytes, int], tuple[Any, int]]
# Value readers by column index that adapt to a column's values; all decoders of a table share them.
Readers = dict[int, tuple[JsonLayouts, Callable[[bytes], Any]]]

_LENGTHS: Final = {1: "B", 2: "H", 4: "I"}


class RowCode:
    """Source text of one decoder while it is generated. A function per column type adds to it."""

    def __init__(self, flavour: Flavour, readers: Readers) -> None:
        self.flavour = flavour
        self.readers = readers
        self.lines: list[str] = []
        self.env: dict[str, Any] = {"I": int.from_bytes}
        self.pending: list[tuple[str, str]] = []
        self.waiting: list[str] = []
        self.indent = " "

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def later(self, line: str) -> None:
        """Add a statement that uses reserved values. It is written after their unpacking, so that more values can join
        that."""
        self.waiting.append(line)

    def bind(self, name: str, value: Any) -> str:
        self.env[name] = value
        return name

    def fixed(self, form: str, variable: str) -> str:
        """Reserve a value of fixed size (struct format `form`) in the next unpacking. Returns the variable's name."""
        self.pending.append((form, variable))
        return variable

    def unpack(self, advance: str = "p+={size}") -> None:
        """Add the unpacking of all reserved values, and then the statements that wait for them."""
        if self.pending:
            self._unpack(advance)
        for line in self.waiting:
            self.add(line)
        self.waiting = []

    def _unpack(self, advance: str) -> None:
        struct = Struct("<" + "".join(form for form, _ in self.pending))
        reader = self.bind(f"S{len(self.env)}", struct.unpack_from)
        names = ",".join(name for _, name in self.pending)
        self.add(f"{names},={reader}(b,p)")
        self.add(advance.format(size=struct.size))
        self.pending = []

    def variable(self, size: int, name: str) -> str:
        """Add the reading of a value after a length of `size` bytes. Returns the source text of the value's bytes."""
        if size == 3:
            self.fixed("H", "l")
            self.fixed("B", "h")
            self.unpack("q=p+{size}")
            self.add("p=q+(l|h<<16)")
        elif size in _LENGTHS:
            self.fixed(_LENGTHS[size], "l")
            self.unpack("q=p+{size}")
            self.add("p=q+l")
        else:
            raise ValueError(f"a length of {size} bytes")
        return "b[q:p]"
