"""Short output for people: of a long list, the entries that match a search, the worst first, and a count of the others.

`--json` of a command prints all entries that match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

MOST = 50  # entries of a list that a command prints by default
_LONGEST = 2000  # characters of a finding or an error, which may list thousands of names
One = TypeVar("One")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChoice:
    """The entries of lists that a command prints: those that contain all words of `search`, at most `limit` of a
    list."""

    search: str = ""
    limit: int = MOST

    def matching(self, entries: Iterable[One], text: Callable[[One], str]) -> list[One]:
        """Return the entries that match the search. `text` is what an entry is found by."""
        words = self.search.lower().split()
        return [one for one in entries if all(word in text(one).lower() for word in words)]

    def lines(
        self,
        entries: Sequence[One],
        lines_of: Callable[[One], Iterable[str]],
        state: Callable[[One], str],
        well: Callable[[One], bool],
    ) -> Iterator[str]:
        """Yield the lines of a list. If it has more entries than the limit, those that are not `well` are first, and a
        last line counts the entries that are left out, by state."""
        shown = entries if len(entries) <= self.limit else sorted(entries, key=well)
        for one in shown[: self.limit]:
            yield from lines_of(one)
        if left := shown[self.limit :]:
            yield f"… and {len(left):,} more: {counted(map(state, left))}. See --limit, --search and --json"


def counted(states: Iterable[str]) -> str:
    """Return how many entries there are of each state, the most frequent first."""
    return ", ".join(f"{number:,} {state}" for state, number in Counter(states).most_common())


def cut(text: str) -> str:
    """Return a text without its end if it is very long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"
