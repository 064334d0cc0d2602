"""Text functions as in Spark. Characters are Unicode code points."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
import zlib
from functools import lru_cache
from typing import Any

from joins.evaluate.unknown import UnknownValue
from joins.query.functions.patterns import BadPattern, pattern_of

_MOST = 2**31 - 1
_STEP = re.compile(r"\.([^.\[\]*?'\s]+)|\[(\d{1,9})\]|\['([^'?*]+)'\]")
_FEW_DIGITS = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


def _known(text: str) -> str:
    """Return the text unchanged. Raises UnknownValue for characters that this version of Python does not know."""
    if not text.isascii() and any(unicodedata.category(c) == "Cn" for c in text):
        raise UnknownValue("the capitals of a character that is not known here")
    return text


def upper(text: str) -> str:
    """Convert to upper case."""
    return _known(text).upper()


def lower(text: str) -> str:
    """Convert to lower case."""
    return _known(text).lower()


def _between(text: str, start: int, end: int) -> str:
    return "" if end <= start else text[max(0, start) : max(0, end)]


def substring(text: str, place: int, length: int = _MOST) -> str:
    """Return `length` characters from position `place`.

    The first position is 1; 0 means the same. A negative position counts from the end."""
    start = place - 1 if place > 0 else len(text) + place if place < 0 else 0
    return _between(text, start, max(-_MOST - 1, min(_MOST, start + length)))


def left(text: str, count: int) -> str:
    """Return the first `count` characters."""
    return substring(text, 1, count)


def right(text: str, count: int) -> str:
    """Return the last `count` characters."""
    return "" if count <= 0 else substring(text, -count)


def replace(text: str, search: str, by: str = "") -> str:
    """Replace all occurrences of `search`. An empty `search` replaces nothing."""
    return text.replace(search, by) if search else text


def padded(text: str, length: int, fill: str, *, before: bool) -> str:
    """Pad with `fill`, or truncate, to exactly `length` characters. `before` pads on the left."""
    missing = length - len(text)
    if missing <= 0 or not fill:
        return text[: max(0, length)]
    more = (fill * (missing // len(fill) + 1))[:missing]
    return more + text if before else text + more


def sha2(text: str, bits: int) -> str | None:
    """Return the SHA-2 digest with 224, 256 (or 0), 384 or 512 bits, in hexadecimal. None for other numbers of bits."""
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, text.encode()).hexdigest()


def md5(text: str) -> str:
    """Return the MD5 digest."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def sha1(text: str) -> str:
    """Return the SHA-1 digest, in hexadecimal."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def initcap(text: str) -> str:
    """Return the text with a capital after each space, and small letters elsewhere.

    Raises UnknownValue for other characters than ASCII."""
    if not text.isascii():
        raise UnknownValue("the capitals of a character that may differ in Spark")
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def translate(text: str, these: str, others: str) -> str:
    """Replace each character of `these` by that at its place in `others`, or remove it. The first place counts."""
    places = {ord(one): others[at : at + 1] for at, one in reversed([*enumerate(these)])}
    return text.translate(places)


def split_part(text: str, by: str, number: int) -> str:
    """Return part `number` (from 1) of a text that is split at `by`. Empty beyond the last part."""
    parts = text.split(by)
    return parts[number - 1] if number <= len(parts) else ""


# patterns that `joins.query.functions.spatial` applies to a geometry's text: they match alike in Java and in Python
_OF_GEOMETRY = ("^(SRID=[0-9]+;)?POINT[(]([^ ]+) ([^)]+)[)]$", "^SRID=([0-9]+);")


def regexp_extract(text: str, pattern: str, group: int) -> str:
    """Return group number `group` of the first match. Empty without a match."""
    if pattern in _OF_GEOMETRY and "\n" in text:
        raise UnknownValue(f"the expression {pattern}")
    found = _regular(pattern).search(text)
    return "" if found is None else found[group] or ""


def regexp_replace(text: str, pattern: str, by: str) -> str:
    """Replace all matches of a pattern. In `by`, `$1` is the first group."""
    pieces = re.split(r"\$(\d)", by)

    regular, done, at, made = _regular(pattern), 0, 0, list[str]()
    # as Java does it: the search after an empty match begins at the next character
    while at <= len(text) and (found := regular.search(text, at)) is not None:
        made += [text[done : found.start()]]
        made += [found[int(one)] or "" if i % 2 else one for i, one in enumerate(pieces)]
        done = found.end()
        at = done if done > found.start() else done + 1
    return "".join([*made, text[done:]])


def rlike(text: str, pattern: str) -> bool:
    """Return whether a pattern matches some part of a text."""
    return _regular(pattern).search(text) is not None


@lru_cache(maxsize=1024)
def _regular(pattern: str) -> re.Pattern[str]:
    """Return a pattern of the compiler for Python. Raises UnknownValue for other patterns."""
    if pattern in _OF_GEOMETRY:
        return re.compile(pattern)
    try:
        return re.compile(pattern_of(pattern).python)
    except BadPattern as error:
        raise UnknownValue(f"the expression {pattern}: {error}") from None


def crc32(text: str) -> int:
    """Return the CRC-32 of the text's bytes."""
    return zlib.crc32(text.encode())


@lru_cache(maxsize=1024)
def like(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a LIKE pattern, in which a backslash escapes the next character."""
    signs = {"%": ".*", "_": "."}
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return re.compile("".join(signs.get(c, re.escape(c[-1])) for c in parts), re.DOTALL)


class _Object(list[tuple[str, Any]]):
    """A JSON object: its members in order, duplicates included."""


class _Number(str):
    """A JSON number with its original text."""

    __slots__ = ()


def _refuse(word: str) -> Any:
    raise ValueError(word)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_float=_Number, parse_int=_Number, parse_constant=_refuse, strict=True
)


@lru_cache(maxsize=1024)
def json_steps(path: str) -> tuple[str | int, ...]:
    """Parse a JSON path such as `$.a['b'][0]` to its steps. Raises UnknownValue for other paths."""
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or not path.startswith("$"):
            raise UnknownValue(f"a path of get_json_object: {path}")
        name, number, quoted = found.groups()
        steps.append(int(number) if number is not None else (name or quoted))
        at = found.end()
    return tuple(steps)


def get_json_object(text: str, path: str) -> str | None:
    """Return the value at a path of a JSON text: strings without quotes, other values as JSON. None if there is
    none.

    Raises UnknownValue where Spark's result is not known."""
    steps = json_steps(path)
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        begin = text.lstrip(" \t\r\n")[:1]
        if begin == "" or begin not in ("{[/#" if steps else "{[\"'-0123456789tfnNI/#"):
            return None
        raise UnknownValue("text that is almost JSON") from None
    for step in steps:
        if isinstance(step, int):
            if isinstance(value, _Object) or not isinstance(value, list):
                return None
            if step >= len(value):
                return None
            value = value[step]
        else:
            if not isinstance(value, _Object):
                if isinstance(value, list):
                    raise UnknownValue("a member of a list of JSON")
                return None
            found = [member for name, member in value if name == step]
            if not found:
                return None
            if len(found) > 1:
                raise UnknownValue("a member of JSON that occurs twice")
            value = found[0]
    if value is None:
        return None if steps else "null"
    if isinstance(value, str) and not isinstance(value, _Number):
        return str(value)
    try:
        return _written(value)
    except RecursionError:
        raise UnknownValue("JSON that is nested too deeply") from None


def _written(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Number():
            if not _FEW_DIGITS.fullmatch(value):
                return _fraction(value)
            return str(value)
        case str():
            if any(c < " " or c in "\x7f\u2028\u2029" or not c.isprintable() for c in value):
                raise UnknownValue("a text within JSON that is written with escapes")
            return json.dumps(value, ensure_ascii=False)
        case _Object():
            return "{" + ",".join(f"{_written(name)}:{_written(member)}" for name, member in value) + "}"
    return "[" + ",".join(map(_written, value)) + "]"


def _fraction(number: str) -> str:
    """Return the number if Spark is sure to write it unchanged: plain, with few digits. Raises UnknownValue
    otherwise."""
    if re.fullmatch(r"-?(?:[1-9][0-9]{0,5}|0)\.(?:[0-9]{0,7}[1-9]|0)", number) and number not in ("-0.0",):
        whole, _, part = number.lstrip("-").partition(".")
        if whole != "0" or part == "0" or not part.startswith("000"):
            return str(number)
    raise UnknownValue("a number within JSON that may be written otherwise")
