"""Generate the source text that decodes dates and times, with look-up tables for days, hours with minutes, and
seconds."""

from __future__ import annotations

from ingest.binlog.format import canonical, temporal
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.rows import convert
from ingest.binlog.rows.rowsource import RowCode


def date(code: RowCode, column: LoggedColumn, name: str) -> str:
    code.fixed("3s", name)
    dates = canonical.PACKED_DAYS if code.flavour.temporal == "canonical" else temporal.DATES
    return f"{code.bind('DATES', dates)}[{name}]"


def _fraction(code: RowCode, digits: int, units: str) -> str:
    """Return f-string source text for a fraction. `units` are 1/100, 1/10000 or 1/1000000 second, depending on
    `digits`."""
    if not digits:
        return ""
    if digits > 4:
        head, tail = code.bind("MILLIS", temporal.MILLIS), code.bind(f"TAIL{digits}", temporal.MICROS[digits])
        return f"{{{head}[{units}//1000]}}{{{tail}[{units}%1000]}}"
    return f"{{{code.bind(f'fraction{digits}', temporal.fractions(digits))}[{units}]}}"


def _iso(code: RowCode, value: str, zone: str) -> str:
    if code.flavour.temporal == "text":
        return value
    if code.flavour.temporal == "canonical":
        return f"{code.bind('moment', canonical.moment)}({value})"
    return f"({value}).replace(' ','T')+'{zone}'" if zone else f"({value}).replace(' ','T')"


def _canonical(text: str, digits: int) -> str:
    """Return source text for the canonical form; `text` is the inside of an f-string for date and time with a T, and
    `u` its fraction."""
    if not digits:
        return f"f'{text}Z'"
    stripped = f"f'{text}'.rstrip('0').rstrip('.')+'Z'"
    # with an even number of digits, all digits of `u` are shown: mostly, the last one is not 0
    return stripped if digits % 2 else f"(f'{text}Z' if u%10 else {stripped})"


def _duration(code: RowCode, column: LoggedColumn, value: str) -> str:
    """Return source text for a TIME, in canonical form if the flavour requires it."""
    if column.digits and code.flavour.temporal == "canonical":
        return f"{code.bind('clock', canonical.clock)}({value})"
    return value


def _clock(code: RowCode) -> tuple[str, str]:
    """Return the separator between date and time, and the suffix of a UTC time."""
    mark = " " if code.flavour.temporal == "text" else "T"
    return mark, "Z" if code.flavour.temporal == "iso" else ""


def datetime2(code: RowCode, column: LoggedColumn, name: str) -> str:
    bits = 8 * ((column.digits + 1) // 2)
    code.fixed(f"{5 + bits // 8}s", name)
    exact = code.flavour.temporal == "canonical"
    days = code.bind("DATETIME_DAYS", canonical.DATETIME_DAYS if exact else temporal.DATETIME_DAYS)
    seconds = code.bind("SECONDS", temporal.SECONDS)
    minutes = code.bind("HOURS", temporal.HOURS[_clock(code)[0]])
    code.later(f"x=I({name},'big')")
    code.later(f"y=x>>{bits}&131071")
    if bits:
        code.later(f"u=x&{(1 << bits) - 1}")
    text = f"{{{days}[x>>{17 + bits}]}}{{{minutes}[y>>6]}}{{{seconds}[y&63]}}" + _fraction(code, column.digits, "u")
    code.later(f"{name}=" + (_canonical(text, column.digits) if exact else f"f'{text}'"))
    return name


def timestamp2(code: RowCode, column: LoggedColumn, name: str) -> str:
    bits = 8 * ((column.digits + 1) // 2)
    code.fixed(f"{4 + bits // 8}s", name)
    separator, zone = _clock(code)
    days, seconds = code.bind("EPOCH_DAYS", temporal.EPOCH_DAYS), code.bind("SECONDS", temporal.SECONDS)
    minutes = code.bind("MINUTES", temporal.MINUTES[separator])
    zero = temporal.ZERO_DATETIME.replace(" ", separator)
    code.later(f"x=I({name},'big')")
    if bits:
        code.later(f"u=x&{(1 << bits) - 1};x>>={bits}")
    code.later("m=x//60")
    fraction = _fraction(code, column.digits, "u") + zone
    text = f"{{{days}[m//1440]}}{{{minutes}[m%1440]}}{{{seconds}[x%60]}}{fraction}"
    moment = "x or u" if bits else "x"  # MariaDB also stores fractions of the first second of 1970
    if code.flavour.temporal == "canonical":
        refuse = code.bind("moment", canonical.moment)
        code.later(f"{name}={_canonical(text, column.digits)} if {moment} else {refuse}('{temporal.ZERO_DATETIME}')")
    else:
        code.later(f"{name}=f'{text}' if {moment} else f'{zero}{fraction}'")
    return name


def timestamp_old(code: RowCode, column: LoggedColumn, name: str) -> str:
    convert.require_digits(column)
    if column.digits:
        size = temporal.MARIA_FRACTION_BYTES[column.digits]
        code.fixed("4s", f"{name}h")
        code.fixed(f"{size}s", f"{name}f")
        text = code.bind("timestamp_text", temporal.timestamp_text)
        micros = f"I({name}f,'big')*{10 ** (6 - column.digits)}"
        return _iso(code, f"{text}(I({name}h,'big'),{micros},{column.digits})", "Z")
    code.fixed("I", name)
    return _iso(code, f"{code.bind('timestamp_text', temporal.timestamp_text)}({name})", "Z")


def datetime_old(code: RowCode, column: LoggedColumn, name: str) -> str:
    convert.require_digits(column)
    if column.digits:
        code.fixed(f"{temporal.MARIA_DATETIME_BYTES[column.digits]}s", name)
        return _iso(code, f"{code.bind('maria_datetime', temporal.maria_datetime_text)}({name},{column.digits})", "")
    code.fixed("Q", name)
    return _iso(code, f"{code.bind('old_datetime', temporal.old_datetime_text)}({name})", "")


def time2(code: RowCode, column: LoggedColumn, name: str) -> str:
    code.fixed(f"{3 + (column.digits + 1) // 2}s", name)
    return _duration(code, column, f"{code.bind('time2', temporal.time2_text)}({name},{column.digits})")


def time_old(code: RowCode, column: LoggedColumn, name: str) -> str:
    convert.require_digits(column)
    if column.digits:
        code.fixed(f"{temporal.MARIA_TIME_BYTES[column.digits]}s", name)
        value = f"{code.bind('maria_time', temporal.maria_time_text)}({name},{column.digits})"
        return _duration(code, column, value)
    code.fixed("H", f"{name}l")
    code.fixed("b", f"{name}h")
    return f"{code.bind('old_time', temporal.old_time_text)}({name}l|{name}h<<16)"
