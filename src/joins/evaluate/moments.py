"""Calculate with dates (days) and datetimes (microseconds) since 1970 UTC, in the proleptic Gregorian calendar.

Texts are parsed as Spark 4 does (`SparkDateTimeUtils`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from joins.evaluate.unknown import UnknownValue

DAY = 86_400_000_000
_UNITS = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": DAY}
_ZONE = re.compile(r" ?(Z|UTC|GMT|[+-]\d{2}:\d{2})")
_FARTHEST = 18 * 60  # minutes of an offset from UTC
_PATTERN = {"yyyy": 0, "MM": 1, "dd": 2, "HH": 3, "mm": 4, "ss": 5}


def days_of(year: int, month: int, day: int) -> int:
    """Return the number of days from 1970-01-01 to a date, which must be valid."""
    y = year - (month <= 2)
    era, of_era = divmod(y, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970-01-01."""
    era, of_era = divmod(days + 719_468, 146_097)
    years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + years + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _is_date(year: int, month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= _length(year, month)


def clock(micros: int) -> tuple[int, int, int]:
    """Return hour, minute and second of a datetime."""
    seconds = micros % DAY // 1_000_000
    return seconds // 3600, seconds // 60 % 60, seconds % 60


def day_of_week(days: int) -> int:
    """Return 1 for Sunday to 7 for Saturday."""
    return (days + 4) % 7 + 1


def day_of_year(days: int) -> int:
    """Return 1 for the first of January."""
    return days - days_of(civil(days)[0], 1, 1) + 1


def last_day(days: int) -> int:
    """Return the last day of the month that contains a day."""
    year, month, _ = civil(days)
    return days_of(year, month, _length(year, month))


def week_of_year(days: int) -> int:
    """Return the week of ISO 8601: weeks begin on Monday, and the first one contains the first Thursday."""
    thursday = days - (days + 3) % 7 + 3
    return (thursday - days_of(civil(thursday)[0], 1, 1)) // 7 + 1


def months_later(days: int, months: int) -> int:
    """Return the same day of a later month, or its last day if it is shorter."""
    year, month, day = civil(days)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    return days_of(year, month + 1, min(day, _length(year, month + 1)))


def mover(number: Decimal, unit: str, *, day: bool) -> Callable[[int], int]:
    """Return the function that adds a number of MONTH, DAY or SECOND to a date (`day`) or datetime."""
    if unit == "MONTH":
        months = int(number)
        if day:
            return lambda days: months_later(days, months)
        return lambda micros: months_later(micros // DAY, months) * DAY + micros % DAY
    length = int(number * _UNITS[unit])
    if day:
        raise UnknownValue(f"a date plus a number of {unit}")
    return lambda micros: micros + length


def truncated(unit: str, micros: int) -> int:
    """Truncate a datetime to the start of a unit such as `month`. Weeks begin on Monday.

    Raises UnknownValue for other units.
    """
    if unit in _UNITS:
        return micros - micros % _UNITS[unit]
    days = micros // DAY
    year, month, _ = civil(days)
    match unit:
        case "WEEK":
            return (days - (days + 3) % 7) * DAY
        case "MONTH":
            return days_of(year, month, 1) * DAY
        case "QUARTER":
            return days_of(year, (month - 1) // 3 * 3 + 1, 1) * DAY
        case "YEAR":
            return days_of(year, 1, 1) * DAY
    raise UnknownValue(f"a unit of date_trunc: {unit}")


def formatted(micros: int, pattern: str) -> str:
    """Format a datetime as Spark's date_format does.

    A pattern consists of yyyy, MM, dd, HH, mm, ss and the separators `-/:. _`. Raises UnknownValue for another pattern,
    and for a year beyond 1 to 9999.
    """
    parts = (*civil(micros // DAY), *clock(micros))
    if not 1 <= parts[0] <= 9999:
        raise UnknownValue("date_format of a year beyond 1 to 9999")
    pieces = re.findall(r"y+|M+|d+|H+|m+|s+|[-/:. _]", pattern)
    if "".join(pieces) != pattern or any(one[0].isalpha() and one not in _PATTERN for one in pieces):
        raise UnknownValue(f"a pattern of date_format: {pattern}")
    return "".join(f"{parts[_PATTERN[one]]:0{len(one)}d}" if one in _PATTERN else one for one in pieces)


def date_text(days: int) -> str:
    """Return a date as Spark casts it to text. Raises UnknownValue for years beyond 1 to 9999."""
    year, month, day = civil(days)
    if not 1 <= year <= 9999:
        raise UnknownValue("a year beyond 1 to 9999 as text")
    return f"{year:04d}-{month:02d}-{day:02d}"


def moment_text(micros: int) -> str:
    """Return a datetime as Spark casts it to text."""
    hour, minute, second = clock(micros)
    fraction = f".{micros % 1_000_000:06d}".rstrip("0") if micros % 1_000_000 else ""
    return f"{date_text(micros // DAY)} {hour:02d}:{minute:02d}:{second:02d}{fraction}"


def _trimmed(text: str) -> str:
    return text.strip("".join(map(chr, [*range(0x21), 0x7F])))


def date_of(text: str) -> int | None:
    """Parse a date to days: `[+-]y…y[-[m]m[-[d]d[( |T)…]]]`. None if the text is not a date."""
    found = re.fullmatch(
        r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", _trimmed(text), re.DOTALL
    )
    if found is None:
        return None
    sign, year, month, day = found.groups()
    date = (int(year) * (-1 if sign == "-" else 1), int(month or 1), int(day or 1))
    return days_of(*date) if _is_date(*date) else None


_MOMENT = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T](?:([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?(.*))?)?)?)?",
    re.DOTALL,
)


def moment_of(text: str) -> int | None:
    """Parse a datetime to microseconds. None if the text is not a datetime. Its time zone is ignored.

    Raises UnknownValue for a text that Spark might or might not read.
    """
    found = _parsed(text)
    return None if found is None else found[0]


def instant_of(text: str) -> int | None:
    """Parse a datetime to microseconds in UTC: an offset from UTC in the text is applied. None if it is no datetime.

    Raises UnknownValue for a text that Spark might or might not read.
    """
    if (found := _parsed(text)) is None:
        return None
    micros, zone = found
    if (offset := re.fullmatch(r"([+-])(\d{2}):(\d{2})", zone)) is None:
        return micros
    minutes = int(offset[2]) * 60 + int(offset[3])
    if int(offset[3]) > 59 or minutes > _FARTHEST:
        return None
    return micros - (-1 if offset[1] == "-" else 1) * minutes * _UNITS["MINUTE"]


def _parsed(text: str) -> tuple[int, str] | None:
    """Return the microseconds of a datetime, without its time zone, and the zone."""
    trimmed = _trimmed(text)
    if trimmed[:1] == "" or (trimmed[0] not in "+-" and not trimmed[0].isascii()):
        return None
    if not (trimmed[0] in "+-T" or trimmed[0].isdigit()):
        return None
    found = _MOMENT.fullmatch(trimmed)
    if found is None:
        if not re.fullmatch(r"[0-9+:. TZ-]*", trimmed):
            _must_be_other_text(trimmed)
        return None
    sign, year, month, day, hour, minute, second, fraction, rest = found.groups()
    if rest:
        if second is None or not _ZONE.fullmatch(rest):
            raise UnknownValue(f"text as a moment: {text!r}")
    elif (hour is None and trimmed[-1] in " T") or (hour is not None and second is None) or fraction == "":
        raise UnknownValue(f"text as a moment: {text!r}")
    date = (int(year) * (-1 if sign == "-" else 1), int(month or 1), int(day or 1))
    times = (int(hour or 0), int(minute or 0), int(second or 0))
    if not _is_date(*date) or times[0] > 23 or times[1] > 59 or times[2] > 59:
        return None
    seconds = (days_of(*date) * 24 + times[0]) * 3600 + times[1] * 60 + times[2]
    micros = int((fraction or "")[:6].ljust(6, "0"))
    return seconds * 1_000_000 + micros, (rest or "").strip()


def _must_be_other_text(text: str) -> None:
    """Raise UnknownValue if letters follow a time, because they may name a time zone."""
    if not re.match(r"[+-]?[0-9-]*[^0-9 T:.+-]", text):
        raise UnknownValue(f"text as a moment: {text!r}")
