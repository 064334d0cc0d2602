"""Read regular expressions of a query, and limit the texts that they may be applied to, so that no text takes long.

Java, which Spark uses, tries one way after the other, and the number of ways may grow with a power of the text's
length. So only patterns whose ways can be counted are accepted: no back references, no look-around, and no repeated
group that could match the same text in two ways. The more ways there are, the shorter the longest text.

A pattern runs in Spark as it is written. `Pattern.python` means the same to Python's `re`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

STEPS = 200_000_000  # the most that one text may take
LONGEST, SHORTEST, NESTED = 1_000_000, 100, 500  # characters; NESTED: each repetition of a group needs stack in Java
_POSITIONS = 300  # characters of a pattern whose counts are written out
_ALL = ((0, 0x10FFFF),)
_ENDS = "\n\r\x85\u2028\u2029"
_CLASSES = {
    "d": ((48, 57),), "w": ((48, 57), (65, 90), (95, 95), (97, 122)), "s": ((9, 13), (32, 32)),
}  # fmt: skip
_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?(?![\s\S]))"  # Java's $, in Python
Ranges = tuple[tuple[int, int], ...]


class BadPattern(ValueError):
    """Raised for a pattern that is not supported: what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern: `python` for `re.compile`, the number of its groups, and the longest text that it is applied to."""

    python: str
    groups: int
    most: int


@dataclass(slots=True)
class _Part:
    """A part of a pattern. `first` and `last` are positions of characters, `empty`: it matches an empty text."""

    python: str
    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    empty: bool = True
    positions: frozenset[int] = frozenset()
    begins: bool = False  # it matches at the begin of a text only


@dataclass(slots=True)
class _Follow:
    """The positions of a pattern: the set of each, which ones may follow it, and the loops among them."""

    sets: list[Ranges] = field(default_factory=list)
    after: list[set[int]] = field(default_factory=list)
    loops: list[frozenset[int]] = field(default_factory=list)


@lru_cache(maxsize=1024)
def pattern_of(text: str) -> Pattern:
    """Return a pattern. Raises BadPattern for one that is not supported."""
    reader = _Reader(text)
    whole = reader.ways()
    if reader.at < len(text):
        raise BadPattern("a ) without (")
    return Pattern(python=whole.python, groups=reader.groups, most=_most(reader.follow, whole))


def plain_text(pattern: str) -> str | None:
    """Return the text that a pattern without any choice matches, such as `|` for `\\\\|`. None for others."""
    found = re.fullmatch(r"(?:[^\\\[\](){}.*+?^$|]|\\[^a-zA-Z0-9]|\[[^\\\[\]^]\])+", pattern, re.DOTALL)
    return re.sub(r"\\(.)|\[(.)\]", lambda one: one[1] or one[2], pattern, flags=re.DOTALL) if found else None


def _most(follow: _Follow, whole: _Part) -> int:
    """Return the longest text whose ways can all be tried."""
    looping = {at for loop in follow.loops for at in loop}
    # positions from which more than one way leads on with the same character
    forks = [at for at, after in enumerate(follow.after) if _clash([follow.sets[i] for i in after])]
    if _clash([follow.sets[i] for i in whole.first]):
        forks.append(-1)
    nested = [loop for loop in follow.loops if len(loop) > 1]
    if nested and forks:
        raise BadPattern("a repeated group, and more than one way to match a text")
    ways = 2 ** sum(at not in looping for at in forks)
    power = sum(at in looping for at in forks) + (not whole.begins) + bool(looping)
    most = int((STEPS * math.factorial(power) / ways) ** (1 / power)) if power else LONGEST
    if most < SHORTEST:
        raise BadPattern("too many ways to match a text")
    return min(most, LONGEST, NESTED if nested else LONGEST)


def _clash(sets: Sequence[Ranges]) -> bool:
    ordered = sorted(one for ranges in sets for one in ranges)
    return any(ordered[i][1] >= ordered[i + 1][0] for i in range(len(ordered) - 1))


def _without(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    found, low = [], 0
    for first, last in sorted(ranges):
        if first > low:
            found.append((low, first - 1))
        low = max(low, last + 1)
    return (*found, (low, 0x10FFFF)) if low <= 0x10FFFF else tuple(found)


def _merged(ranges: Ranges) -> Ranges:
    return _without(_without(ranges))


class _Reader:
    """Reads a pattern by recursive descent."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.groups, self.follow = text, 0, 0, _Follow()

    def refuse(self, what: str) -> NoReturn:
        raise BadPattern(f"{what} at character {self.at + 1}")

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def ways(self) -> _Part:
        """Read alternatives, up to a closing bracket or the end."""
        found = [self._row()]
        while self._peek() == "|":
            self.at += 1
            found.append(self._row())
        if len(found) == 1:
            return found[0]
        return _Part(
            python="|".join(one.python for one in found),
            first=frozenset().union(*(one.first for one in found)),
            last=frozenset().union(*(one.last for one in found)),
            empty=any(one.empty for one in found),
            positions=frozenset().union(*(one.positions for one in found)),
            begins=all(one.begins for one in found),
        )

    def _row(self) -> _Part:
        row = _Part(python="")
        while self._peek() not in ("", "|", ")"):
            row = self._joined(row, self._counted())
        return row

    def _joined(self, one: _Part, other: _Part) -> _Part:
        for at in one.last:
            self.follow.after[at] |= other.first
        return _Part(
            python=one.python + other.python,
            first=one.first | other.first if one.empty else one.first,
            last=one.last | other.last if other.empty else other.last,
            empty=one.empty and other.empty,
            positions=one.positions | other.positions,
            begins=one.begins or (one.empty and not one.positions and other.begins),
        )

    def _counted(self) -> _Part:
        start, groups = self.at, self.groups
        part = self._atom()
        end = self.at
        found = re.compile(r"([*+?]|\{(\d{1,4})(,(\d{0,4}))?\})(\??)").match(self.text, self.at)
        if found is None:
            if self._peek() in ("*", "+", "?", "{"):
                self.refuse(f"{self._peek()} that repeats nothing")
            return part
        self.at = found.end()
        if not part.positions or self._peek() in ("*", "+", "?", "{"):
            self.refuse("a repetition of nothing, or of a repetition")
        python = part.python + found[0]
        least, most = self._limits(found)
        if most == 0 or (most is not None and most < least):
            self.refuse(f"{found[0]}, which repeats nothing")
        copies = [part] + [self._again(start, end, groups) for _ in range(1, max(least, most or 1))]
        if most is None and part.empty:  # Java repeats it once more for each character, and needs stack for it
            self.refuse("a repetition of what may be empty")
        if most is None:
            self._loop(copies[-1])
        row = _Part(python="")
        for number, copy in enumerate(copies):
            # each further copy is only reached through the one before it
            row = self._joined(row, _Part(python="", first=copy.first, last=copy.last, empty=number >= least,
                                          positions=copy.positions))  # fmt: skip
        return _Part(
            python=python, first=row.first, last=row.last, empty=least == 0 or part.empty, positions=row.positions,
            begins=part.begins and least > 0,
        )  # fmt: skip

    def _limits(self, found: re.Match[str]) -> tuple[int, int | None]:
        if found[2] is None:
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
        least = int(found[2])
        return least, least if found[3] is None else int(found[4]) if found[4] else None

    def _again(self, start: int, end: int, groups: int) -> _Part:
        """Read a part once more, as a copy with positions of its own."""
        at, known = self.at, self.groups
        self.at, self.groups = start, groups
        copy = self._atom()
        assert self.at == end  # the same text
        self.at, self.groups = at, known
        return copy

    def _loop(self, part: _Part) -> None:
        for at in part.last:
            if self.follow.after[at] & part.first:  # it loops within already
                self.refuse("a repetition within a repetition")
            self.follow.after[at] |= part.first
        self.follow.loops.append(part.positions)

    def _atom(self) -> _Part:
        sign = self._peek()
        self.at += 1
        match sign:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "^":
                return _Part(python=r"\A", begins=True)
            case "$":
                return _Part(python=_END)
            case ".":
                return self._one(_without(tuple((ord(c), ord(c)) for c in _ENDS)))
            case "\\":
                return self._one(self._escaped())
            case "*" | "+" | "?" | "{":
                self.at -= 1
                self.refuse(f"{sign} that repeats nothing")
        return self._one(((ord(sign), ord(sign)),))

    def _group(self) -> _Part:
        word = "("
        if self._peek() == "?":
            if not self.text.startswith("?:", self.at):
                self.refuse("(? other than (?:")
            self.at += 2
            word = "(?:"
        else:
            self.groups += 1
        part = self.ways()
        if self._peek() != ")":
            self.refuse("a ( without )")
        self.at += 1
        part.python = f"{word}{part.python})"
        return part

    def _escaped(self) -> Ranges:
        sign = self._peek()
        self.at += 1
        if sign.lower() in _CLASSES:
            ranges = _CLASSES[sign.lower()]
            return ranges if sign.islower() else _without(ranges)
        if sign in _SIGNS:
            sign = _SIGNS[sign]
        elif not sign or sign.isalnum() or not sign.isascii():
            self.at -= 1
            self.refuse(f"\\{sign}")
        return ((ord(sign), ord(sign)),)

    def _class(self) -> _Part:
        """Read a class of characters up to its bracket."""
        negated = self._peek() == "^"
        self.at += negated
        found: list[tuple[int, int]] = []
        while (sign := self._peek()) != "]" or not found:
            if sign in ("", "[", "]") or self.text.startswith("&&", self.at):
                self.refuse("an empty class, or one within another")
            low = self._member()
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._member()
                if len(low) > 1 or len(high) > 1 or low[0][0] != low[0][1] or high[0][0] < low[0][0]:
                    self.refuse("a range of characters")
                low = ((low[0][0], high[0][1]),)
            found += low
        self.at += 1
        ranges = _merged(tuple(found))
        return self._one(_without(ranges) if negated else ranges)

    def _member(self) -> Ranges:
        sign = self._peek()
        self.at += 1
        return self._escaped() if sign == "\\" else ((ord(sign), ord(sign)),)

    def _one(self, ranges: Ranges) -> _Part:
        """Return a part that matches one character."""
        if len(self.follow.sets) >= _POSITIONS or not ranges:
            self.refuse("a pattern that is too long")
        at = frozenset({len(self.follow.sets)})
        self.follow.sets.append(ranges)
        self.follow.after.append(set())
        shown = "".join(_shown(low) if low == high else f"{_shown(low)}-{_shown(high)}" for low, high in ranges)
        return _Part(python=f"[{shown}]", first=at, last=at, empty=False, positions=at)


def _shown(code: int) -> str:
    return f"\\U{code:08x}"
