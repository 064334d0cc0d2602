"""Choose keys that divide a range of keys into ranges of about equally many rows, from the estimates of a server.

Values of a key column are mapped to whole numbers, in about the server's order. For texts the order depends on the
collation, so their ranges may differ more in size. The reader takes the order of the keys from the server.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

Estimate = Callable[[int], float]
_WIDTH = 8  # characters or bytes of a text, after the common beginning, that its number contains
_PRINTABLE = range(0x20, 0x7F)  # in the order of collations that compare bytes
_LETTERS = [*b"0123456789abcdefghijklmnopqrstuvwxyz"]  # in the order of all other collations
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_TOLERANCE = 0.2  # how much of its size a range may be wrong by


class KeyPoints(NamedTuple):
    """The numbers of two values of a key column, and the value for each number between them."""

    low: int
    high: int
    value: Callable[[int], Any]


def key_points(kind: str, low: Any, high: Any, *, folds: bool = False) -> KeyPoints | None:
    """Return the numbers for the values between two, in the form of `chunks.stored`; None if they have none.

    `kind` is the kind of the column's logical type. `folds`: the collation ignores case and accents.
    """
    try:
        if isinstance(low, dict):
            return _texts(bytes.fromhex(low["hex"]), bytes.fromhex(high["hex"]), range(256), _hex)
        if kind == "string":
            low, high = map(_folded, (low, high)) if folds else (low, high)
            return _texts([*map(ord, low)], [*map(ord, high)], _LETTERS if folds else _PRINTABLE, _text)
        if kind in ("date", "datetime", "timestamp"):
            digits = 10 if kind == "date" else 26
            first, last = ((datetime.fromisoformat(value) - _EPOCH) // _MICROSECOND for value in (low, high))
            return KeyPoints(first, last, lambda number: str(_EPOCH + number * _MICROSECOND)[:digits])
        scale = max(len(value.partition(".")[2]) for value in (low, high))
        first, last = (int(Decimal(value).scaleb(scale)) for value in (low, high))
        return KeyPoints(first, last, lambda number: f"{Decimal(number).scaleb(-scale):f}")
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return None  # a value of the server that is no valid one, such as the date 0000-00-00


def _texts(
    low: Sequence[int], high: Sequence[int], alphabet: Sequence[int], made: Callable[[Sequence[int]], Any]
) -> KeyPoints:
    """Return the numbers of two texts: the characters after their common beginning are digits."""
    same = next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
    begin, base = list(low[:same]), len(alphabet)

    def number(text: Sequence[int]) -> int:
        found = 0
        for at in range(same, same + _WIDTH):
            digit = bisect_left(alphabet, text[at]) if at < len(text) else 0
            found = found * base + min(digit, base - 1)
        return found

    def value(number: int) -> Any:
        digits: list[int] = []
        for _ in range(_WIDTH):
            number, digit = divmod(number, base)
            digits.insert(0, alphabet[digit])
        return made(begin + digits)

    return KeyPoints(number(low), number(high), value)


def _folded(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(c))


def _hex(values: Sequence[int]) -> Any:
    return {"hex": bytes(values).hex()}


def _text(values: Sequence[int]) -> Any:
    return "".join(map(chr, values)).rstrip()


def divided(low: int, high: int, wanted: int, estimate: Estimate, budget: int) -> list[int]:
    """Return up to `wanted` - 1 ascending numbers between two, which divide them into ranges of about equal size.

    `estimate` returns the approximate number of rows above `low` up to a number. It is asked at most `budget` times.
    """
    known = {low: 0.0, high: estimate(high)}
    size, left, found = known[high] / wanted, budget, list[int]()
    for target in (size * number for number in range(1, wanted)):
        while left:
            places = sorted(known)
            at = next(index for index, place in enumerate(places) if known[place] >= target)
            below, above = places[max(at - 1, 0)], places[at]
            near = min((below, above), key=lambda place: abs(known[place] - target))
            if above - below <= 1 or abs(known[near] - target) <= _TOLERANCE * size:
                break
            share = (target - known[below]) / max(known[above] - known[below], 1.0)
            # between linear interpolation, which suits even keys, and halving, which finds a gap in few steps
            middle = below + max(1, int((above - below) * share)) if left % 2 else (below + above) // 2
            guess = min(max(middle, below + 1), above - 1)
            left -= 1
            known[guess] = min(max(estimate(guess), known[below]), known[above])
        places = sorted(known)
        cut = min(places, key=lambda place: abs(known[place] - target))
        if low < cut < high and (not found or cut > found[-1]):
            found.append(cut)
    return found
