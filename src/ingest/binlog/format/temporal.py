"""Format dates and times of a binlog as the server does (time zone UTC), including zero and partial dates.

The text of each distinct day and time of day is cached, because a look-up costs a tenth of formatting. A cache that is
full is cleared. Impossible values (month 15, minute 63) raise ValueError, so that corrupt rows never become plausible
text. Source: `my_time.cc` of MySQL, `compat56.cc` and `field.cc` of MariaDB.
"""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache
from typing import Final

_LIMIT: Final = 1 << 17
_EPOCH: Final = date(1970, 1, 1)
_LAST_EPOCH_DAY: Final = (date(9999, 12, 31) - _EPOCH).days


def date_text(year: int, month: int, day: int) -> str:
    """Format a date as `YYYY-MM-DD`. Month and day may be zero, as in MySQL. Raises ValueError for an impossible
    date."""
    if month > 12 or year > 9999 or day > 31:
        raise ValueError(f"no date: year {year} month {month} day {day}")
    return f"{year:04d}-{month:02d}-{day:02d}"


def clock_text(hour: int, minute: int, second: int) -> str:
    """Format a time of day as `HH:MM:SS`. Raises ValueError for an impossible time."""
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"no time of day: {hour}:{minute}:{second}")
    return f"{hour:02d}:{minute:02d}:{second:02d}"


class _Dates(dict[bytes, str]):
    """Cache: three bytes of a DATE → text."""

    def __missing__(self, raw: bytes) -> str:
        if len(self) > _LIMIT:
            self.clear()
        packed = int.from_bytes(raw, "little")
        text = self[raw] = date_text(packed >> 9, packed >> 5 & 15, packed & 31)
        return text


class _DatetimeDays(dict[int, str]):
    """Cache: first 23 bits of a DATETIME2 (sign, year and month, day) → text."""

    def __missing__(self, packed: int) -> str:
        if len(self) > _LIMIT:
            self.clear()
        if not packed >> 22:
            raise ValueError("a DATETIME below zero")
        year, month = divmod(packed >> 5 & 0x1FFFF, 13)
        text = self[packed] = date_text(year, month, packed & 31)
        return text


class _EpochDays(dict[int, str]):
    """Cache: days since 1970 → text."""

    def __missing__(self, days: int) -> str:
        if not 0 <= days <= _LAST_EPOCH_DAY:
            raise ValueError(f"no timestamp: {days} days after 1970")
        text = self[days] = (_EPOCH + timedelta(days=days)).isoformat()
        return text


class _Bounded(dict[int, str]):
    """A complete table: a number that it does not contain raises ValueError."""

    def __missing__(self, number: int) -> str:
        raise ValueError(f"no time of day has a part {number}")


@cache
def fractions(digits: int) -> _Bounded:
    """Map a stored fraction with one to four digits, in hundredths or ten-thousandths of a second, to `.fff`."""
    count = 100 if digits < 3 else 10_000
    return _Bounded((unit, f".{unit * (1_000_000 // count):06d}"[: digits + 1]) for unit in range(count))


SECONDS: Final = _Bounded((second, f"{second:02d}") for second in range(60))
# By separator of date and time: hour and minute as DATETIME2 packs them, or minutes of a day → ` HH:MM:`.
HOURS: Final = {
    mark: _Bounded((h << 6 | m, f"{mark}{h:02d}:{m:02d}:") for h in range(24) for m in range(60)) for mark in " T"
}
MINUTES: Final = {
    mark: _Bounded((h * 60 + m, f"{mark}{h:02d}:{m:02d}:") for h in range(24) for m in range(60)) for mark in " T"
}
# A fraction of five or six digits in two parts of three: `.fff` and what follows it.
MILLIS: Final = _Bounded((part, f".{part:03d}") for part in range(1000))
MICROS: Final = {digits: _Bounded((part, f"{part:03d}"[: digits - 3]) for part in range(1000)) for digits in (5, 6)}
DATES: Final = _Dates()
DATETIME_DAYS: Final = _DatetimeDays()
EPOCH_DAYS: Final = _EpochDays()
ZERO_DATETIME: Final = "0000-00-00 00:00:00"


def fraction_text(micros: int, digits: int) -> str:
    """Format microseconds as `.ffffff`, cut to `digits` digits; empty for none. Raises ValueError for a second or
    more."""
    if micros > 999_999:
        raise ValueError(f"no fraction of a second: {micros} microseconds")
    return f".{micros:06d}"[: digits + 1] if digits else ""


def timestamp_text(seconds: int, micros: int = 0, digits: int = 0) -> str:
    """Format a TIMESTAMP in UTC. MySQL stores the zero timestamp as 0."""
    if not seconds and not micros:
        return ZERO_DATETIME + fraction_text(0, digits)
    minutes, second = divmod(seconds, 60)
    return EPOCH_DAYS[minutes // 1440] + MINUTES[" "][minutes % 1440] + SECONDS[second] + fraction_text(micros, digits)


def duration_text(hours: int, minutes: int, seconds: int, micros: int, digits: int, negative: bool) -> str:
    """Format a TIME: `-838:59:59.000000` to `838:59:59.000000`. Raises ValueError for impossible parts."""
    if minutes > 59 or seconds > 59 or hours > 1023:
        raise ValueError(f"no time: {hours}:{minutes}:{seconds}")
    sign = "-" if negative else ""
    return f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}{fraction_text(micros, digits)}"


def time2_text(packed: bytes, digits: int) -> str:
    """Decode TIME2(digits): a number offset by half its range, whose magnitude is hours, minutes, seconds and a
    fraction."""
    value = int.from_bytes(packed, "big") - (1 << (8 * len(packed) - 1))
    magnitude = abs(value)
    bits = 8 * (len(packed) - 3)
    fraction = magnitude & ((1 << bits) - 1)
    clock = magnitude >> bits
    micros = fraction * (1, 10_000, 100, 1)[len(packed) - 3]
    return duration_text(clock >> 12 & 1023, clock >> 6 & 63, clock & 63, micros, digits, value < 0)


def old_time_text(packed: int) -> str:
    """Decode a TIME from before MySQL 5.6: a signed number whose decimal digits are hours, minutes and seconds."""
    clock = abs(packed)
    return duration_text(clock // 10000, clock // 100 % 100, clock % 100, 0, 0, packed < 0)


def old_datetime_text(packed: int) -> str:
    """Decode a DATETIME from before MySQL 5.6: a number with the decimal digits YYYYMMDDhhmmss."""
    day, clock = divmod(packed, 1_000_000)
    text = date_text(day // 10000, day // 100 % 100, day % 100)
    return f"{text} {clock_text(clock // 10000, clock // 100 % 100, clock % 100)}"


# MariaDB without mysql56_temporal_format: bytes of the fraction by number of digits.
_SCALE: Final = (1_000_000, 100_000, 10_000, 1_000, 100, 10, 1)
MARIA_TIME_BYTES: Final = (3, 4, 4, 5, 5, 5, 6)
MARIA_DATETIME_BYTES: Final = (8, 6, 6, 7, 7, 7, 8)
MARIA_FRACTION_BYTES: Final = (0, 1, 1, 2, 2, 3, 3)


def maria_datetime_text(packed: bytes, digits: int) -> str:
    """Decode MariaDB's old DATETIME(1–6): a big-endian number, mixed radix of date, time and fraction."""
    value = int.from_bytes(packed, "big") * _SCALE[digits]
    value, micros = divmod(value, 1_000_000)
    value, second = divmod(value, 60)
    value, minute = divmod(value, 60)
    value, hour = divmod(value, 24)
    value, day = divmod(value, 32)
    year, month = divmod(value, 13)
    return f"{date_text(year, month, day)} {clock_text(hour, minute, second)}{fraction_text(micros, digits)}"


def maria_time_text(packed: bytes, digits: int) -> str:
    """Decode MariaDB's old TIME(1–6): a number in units of its last digit, offset by 839 hours."""
    value = int.from_bytes(packed, "big") - 839 * 3600 * 10**digits
    clock, micros = divmod(abs(value) * _SCALE[digits], 1_000_000)
    return duration_text(clock // 3600, clock // 60 % 60, clock % 60, micros, digits, value < 0)


def packed_datetime_text(packed: int, kind: str) -> str:
    """Format a temporal value inside JSON, MySQL's packed 64 bits, with six digits as the server does."""
    negative, magnitude = packed < 0, abs(packed)
    micros, clock = magnitude & 0xFFFFFF, magnitude >> 24
    if kind == "time":
        return duration_text(clock >> 12 & 1023, clock >> 6 & 63, clock & 63, micros, 6, negative)
    year, month = divmod(clock >> 22, 13)
    day = date_text(year, month, clock >> 17 & 31)
    if kind == "date":
        return day
    return f"{day} {clock_text(clock >> 12 & 31, clock >> 6 & 63, clock & 63)}{fraction_text(micros, 6)}"
