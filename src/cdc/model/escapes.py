"""Reversible escape of any name into letters, digits, `_` and `-`, for systems that accept no other characters.

Names of letters (A to Z), digits, `_` and `-` stay as they are. Every run of other characters, including dots, becomes
`-x`, four hexadecimal digits for each unit of its UTF-16, and `-`: `order details` is `order-x0020-details`, `日本` is
`-x65e5672c-`. If a name itself looks like an escape, its `-` is escaped, too. So no two names have the same escape.
"""

from __future__ import annotations

import re
from hashlib import sha256

_OTHERS = re.compile(r"[^A-Za-z0-9_-]+|-(?=x(?:[0-9a-f]{4})+[^A-Za-z0-9_])")
_ESCAPE = re.compile(r"-x((?:[0-9a-f]{4})+)-")
_CUT = re.compile(r"-h[0-9a-f]{32}$")
_HASHED = 34  # characters of `-h` and 32 digits


def escaped(name: str) -> str:
    """Return the name in letters, digits, `_` and `-`."""
    return _OTHERS.sub(_escape, name)


def _escape(found: re.Match[str]) -> str:
    return f"-x{found[0].encode('utf-16-be', 'surrogatepass').hex()}-"


def unescaped(text: str) -> str:
    """Unescape a text; inverse of `escaped`. Raises ValueError for a text that is not an escaped name."""
    name = _ESCAPE.sub(lambda found: bytes.fromhex(found[1]).decode("utf-16-be", "surrogatepass"), text)
    if escaped(name) != text:
        raise ValueError(f"{text!r} is not an escaped name")
    return name


def bounded(text: str, most: int, *, of: str) -> str:
    """Return the text, or, if it has more than `most` characters, its beginning and a hash of `of` that makes it
    unique.

    A text that looks like a shortened one is shortened, too, so that it cannot be confused with another's.
    """
    if len(text) <= most and not (len(text) == most and _CUT.search(text)):
        return text
    return f"{text[: most - _HASHED]}-h{sha256(of.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


_PART = re.compile(r'`((?:[^`]|``)+)`|"((?:[^"]|"")+)"|([^.]+)')
_PLAIN = re.compile(r"[^.`\"][^.`]*")


def dotted(*names: str) -> str:
    """Join names with dots. A name that contains a dot or a backtick, or starts with a quote, is put in backticks."""
    return ".".join(name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`" for name in names)


def parts_of(text: str) -> tuple[str, ...]:
    """Split names at dots; inverse of `dotted`. Each name is in backticks, in double quotes, or plain.

    A text with unclosed quotes is split at every dot.
    """
    found, at = list[str](), 0
    while match := _PART.match(text, at):
        found.append((match[1] or "").replace("``", "`") or (match[2] or "").replace('""', '"') or match[3])
        if match.end() == len(text):
            return tuple(found)
        if text[match.end()] != ".":
            break
        at = match.end() + 1
    return tuple(text.split("."))


def meanings(text: str, database: str) -> list[tuple[str, str]]:
    """Return all meanings of `table` or `database.table` without quotes, whose names may contain dots; a table of
    `database` first. A text with quotes means one table."""
    parts, plain = parts_of(text), text.split(".")
    if parts != tuple(plain):
        return [table_parts(text, database)]
    splits = [(".".join(plain[:n]), ".".join(plain[n:])) for n in range(1, len(plain))]
    return [(database, text), *splits]


def table_parts(text: str, database: str) -> tuple[str, str]:
    """Return database and table of `table` or `database.table`. Further dots outside quotes belong to the table.

    `database` is the default database. A part is empty if the text does not contain it.
    """
    first, *rest = parts_of(text)
    return (first, ".".join(rest)) if rest else (database, first)
