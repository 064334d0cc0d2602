"""Decode DECIMAL as stored: groups of up to nine digits, big-endian; the first bit is inverted, negatives complemented.

`decimal_text` decodes one value. The generated row decoder contains the same arithmetic for each column, with the
groups of `decimal_plan`. Source: `bin2decimal` in MySQL's `strings/decimal.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

_BYTES_OF_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalPlan:
    """Layout of DECIMAL(precision, scale): groups of (bytes, digits) before and after the point, and the total size in
    bytes."""

    whole: tuple[tuple[int, int], ...]
    fraction: tuple[tuple[int, int], ...]
    size: int
    scale: int


def decimal_plan(precision: int, scale: int) -> DecimalPlan:
    """Return the layout of DECIMAL(precision, scale). Raises ValueError for types that no server creates."""
    if not 0 < precision <= 65 or not 0 <= scale <= 38 or scale > precision:
        raise ValueError(f"no DECIMAL has precision {precision} and scale {scale}")
    full, rest = divmod(precision - scale, 9)
    whole = ([(_BYTES_OF_DIGITS[rest], rest)] if rest else []) + [(4, 9)] * full
    full, rest = divmod(scale, 9)
    fraction = [(4, 9)] * full + ([(_BYTES_OF_DIGITS[rest], rest)] if rest else [])
    size = sum(width for width, _ in whole + fraction)
    return DecimalPlan(whole=tuple(whole), fraction=tuple(fraction), size=size, scale=scale)


@cache
def decimal_fractions(digits: int) -> tuple[str, ...]:
    """Return the texts, with the point, of all values of a group of so many digits after the point."""
    return tuple(f".{part:0{digits}d}" for part in range(10**digits))


def _join(value: int, groups: tuple[tuple[int, int], ...]) -> int:
    total, shift = 0, 8 * sum(width for width, _ in groups)
    for width, digits in groups:
        shift -= 8 * width
        part = value >> shift & ((1 << 8 * width) - 1)
        if part >= 10**digits:
            raise ValueError(f"{part} in a group of {digits} decimal digits")
        total = total * 10**digits + part
    return total


def decimal_text(packed: bytes, plan: DecimalPlan) -> str:
    """Return the text of a number, with exactly `scale` digits after the point."""
    bits = 8 * plan.size
    value = int.from_bytes(packed[: plan.size], "big")
    top = 1 << (bits - 1)
    sign = ""
    if value & top:
        value ^= top
    else:
        value, sign = value ^ (top - 1), "-"
    fraction_bits = 8 * sum(width for width, _ in plan.fraction)
    whole = _join(value >> fraction_bits, plan.whole)
    fraction = _join(value & ((1 << fraction_bits) - 1), plan.fraction)
    if not plan.scale:
        return f"{sign}{whole}"
    return f"{sign}{whole}.{fraction:0{plan.scale}d}"


def encode_decimal(value: Any, precision: int, scale: int) -> bytes:
    """Encode a number or its text as DECIMAL(precision, scale). Raises ValueError if it does not fit."""
    plan = decimal_plan(precision, scale)
    text = value if isinstance(value, str) else format(value, "f")
    whole, _, fraction = text.lstrip("-").partition(".")
    digits = whole.zfill(sum(digits for _, digits in plan.whole)) + fraction.ljust(scale, "0")
    if not plan.whole:
        digits = digits.removeprefix("0") if len(digits) > scale else digits
    if len(digits) != sum(count for _, count in plan.whole + plan.fraction):
        raise ValueError(f"{text} does not fit DECIMAL({precision},{scale})")
    packed, at = b"", 0
    for size, count in plan.whole + plan.fraction:
        packed += int(digits[at : at + count]).to_bytes(size, "big")
        at += count
    full, top = (1 << 8 * plan.size) - 1, 1 << (8 * plan.size - 1)
    number = int.from_bytes(packed, "big") ^ top
    return (full ^ number if text.startswith("-") else number).to_bytes(plan.size, "big")
