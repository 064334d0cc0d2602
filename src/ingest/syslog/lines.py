"""Parse one syslog message in the form of RFC 5424 or RFC 3164.

Senders of RFC 3164 differ: host, tag and even the time may be missing, but the text is always kept. A message without a
priority is invalid.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
_PRIORITY = re.compile(r"<(\d{1,3})>")
_NEWER = re.compile(
    r"1 (?P<at>\S+) (?P<host>\S{1,255}) (?P<app>\S{1,48}) (?P<proc>\S{1,128}) (?P<id>\S{1,32}) (?P<rest>.*)", re.DOTALL
)
_OLDER = re.compile(
    r"(?:(?P<at>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) )?(?:(?P<host>[^\s:\[]+) (?=\S))?"
    r"(?:(?P<app>[\w./-]{1,48})(?:\[(?P<proc>[^\]]{1,128})\])?: ?)?(?P<text>.*)",
    re.DOTALL,
)
_ELEMENT = re.compile(r'\[([^\s=\]"]{1,32})((?: [^\s=\]"]{1,32}="(?:[^"\\\]]|\\.)*")*)\]', re.DOTALL)
_PARAMETER = re.compile(r' ([^\s=\]"]{1,32})="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyslogMessage:
    """A parsed message; missing fields are None. `at` is the sender's time in UTC.

    `header` is False if a part of `text` may belong to the header: then the header has another form, or it has no time,
    host or tag.
    """

    facility: str
    severity: int
    at: dt.datetime | None
    host: str | None
    app: str | None
    proc: str | None
    msgid: str | None
    structured: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    text: str
    header: bool = True


def parsed(data: bytes, received: dt.datetime) -> SyslogMessage:
    """Parse a message. RFC 3164 has no year, which is derived from `received` (UTC), and no time zone: UTC is assumed.

    Raises ValueError for a missing priority, an invalid time of RFC 5424 or invalid structured data.
    """
    text = data.decode("utf-8-sig", errors="replace").rstrip("\r\n\0")
    match = _PRIORITY.match(text)
    if match is None or int(match[1]) > 191:
        raise ValueError("no priority <0> to <191> at the beginning")
    facility, severity = FACILITIES[int(match[1]) // 8], int(match[1]) % 8
    rest = text[match.end() :]
    newer = _NEWER.fullmatch(rest)
    if newer is not None:
        structured, text = _structured(newer["rest"])
        return SyslogMessage(
            facility=facility,
            severity=severity,
            at=None if newer["at"] == "-" else _moment(newer["at"]),
            host=_field(newer["host"]),
            app=_field(newer["app"]),
            proc=_field(newer["proc"]),
            msgid=_field(newer["id"]),
            structured=structured,
            text=text,
        )
    older = _OLDER.fullmatch(rest)
    assert older is not None, "the pattern matches any text"
    at = older["at"]
    host = older["host"] if at else None
    return SyslogMessage(
        facility=facility,
        severity=severity,
        at=None if at is None else _moment(at) if at[0].isdigit() else _yearless(at, received),
        host=host,
        app=older["app"],
        proc=older["proc"],
        msgid=None,
        text=older["text"] if host is not None or older["host"] is None else rest[rest.index(older["host"]) :],
        header=None not in (at, host, older["app"]),
    )


def _field(text: str) -> str | None:
    return None if text == "-" else text


def _moment(text: str) -> dt.datetime:
    at = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return at.astimezone(dt.UTC)


def _yearless(text: str, received: dt.datetime) -> dt.datetime:
    """Return the time in the year that is nearest to `received`, because clocks differ at New Year."""
    month, day = _MONTHS.index(text[:3]) + 1 if text[:3] in _MONTHS else 0, int(text[4:6])
    hour, minute, second = (int(part) for part in text[7:].split(":"))
    found = []
    for year in (received.year - 1, received.year, received.year + 1):
        try:
            found.append(dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC))
        except ValueError:  # 29 February in a year without one
            continue
    if not found:
        raise ValueError(f"{text} is not a time")
    return min(found, key=lambda at: abs(at - received))


def _structured(rest: str) -> tuple[dict[str, dict[str, str]], str]:
    if rest == "-" or rest.startswith("- "):
        return {}, rest[2:].removeprefix("\ufeff")
    found: dict[str, dict[str, str]] = {}
    at = 0
    while match := _ELEMENT.match(rest, at):
        found[match[1]] = {name: re.sub(r'\\(["\\\]])', r"\1", value) for name, value in _PARAMETER.findall(match[2])}
        at = match.end()
    if not found or (at < len(rest) and rest[at] != " "):
        raise ValueError("invalid structured data")
    return found, rest[at + 1 :].removeprefix("\ufeff")
