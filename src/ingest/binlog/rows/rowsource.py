"""Collect the source text of a generated row decoder."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from ingest.binlog.format.flavour import Flavour
from ingest.binlog.json.layout import JsonLayouts

RowFunction = Callable[[bytes, int], tuple[Any, int]]
# Readers that learn from a column's values, by the column's index: shared by all functions of a table.
Readers = dict[int, tuple[JsonLayouts, Callable[[bytes], Any]]]

_LENGTHS: Final = {1: "B", 2: "H", 4: "I"}


class RowCode:
    """Collects the source of one decoder; functions chosen by column type write into it."""

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
        """Add a statement that needs the reserved values. It follows their unpacking, so more values can join it."""
        self.waiting.append(line)

    def bind(self, name: str, value: Any) -> str:
        self.env[name] = value
        return name

    def fixed(self, form: str, variable: str) -> str:
        """Reserve a value of fixed size in the struct that is being collected."""
        self.pending.append((form, variable))
        return variable

    def unpack(self, advance: str = "p+={size}") -> None:
        """Write the unpacking of all reserved values, and the statements that wait for them."""
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
        """Read a value after a length of `size` bytes. Returns the slice's source text."""
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
