"""Row images of the log, decoded: the values that mysql-replication gets wrong, and bytes that must not be skipped."""

from __future__ import annotations

import struct
from dataclasses import replace
from decimal import Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import Fatal
from cdc.types import Canonical
from ingest.agent.columns import Charset, LoggedColumn, LoggedTable
from ingest.agent.facts import Refused
from ingest.agent.jsonb import double_text, json_text
from ingest.agent.rows import RowDecoder
from ingest.agent.values import Unrepresentable

CHARSETS = {
    63: Charset(name="binary", width=1),
    255: Charset(name="utf8mb4", width=4),
    8: Charset(name="latin1", width=1),
}
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_WIDE = Context(prec=100)


def decoded(column: LoggedColumn, stored: bytes) -> Canonical | Refused:
    """The value of a one-column row."""
    table = LoggedTable(database="d", table="t", columns=(column,), primary_key=(0,))
    (image,) = RowDecoder(table, CHARSETS).images(b"\xfe" + stored, b"\xff")
    return image if isinstance(image, Refused) else image["c"]


def column(code: int, **more: object) -> LoggedColumn:
    return replace(LoggedColumn(name="c", code=code), **more)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("logged", "stored", "value"),
    [
        (column(1), b"\x80", -128),
        (column(1, unsigned=True), b"\x80", 128),
        (column(9), b"\xff\xff\xff", -1),
        (column(9, unsigned=True), b"\xff\xff\xff", 16777215),
        (column(8, unsigned=True), b"\xff" * 8, 2**64 - 1),
        (column(13), b"\x00", 0),
        (column(13), b"\x7b", 2023),
        (column(16, size=1, precision=1), b"\x01", True),
        (column(16, size=2, precision=9), b"\x01\x01", "AQE="),
        (column(247, size=1, members=("a", "b")), b"\x02", "b"),
        (column(247, size=1, members=("a", "b")), b"\x00", ""),
        (column(248, size=1, members=("x", "y", "z")), b"\x05", "x,z"),
        (column(248, size=1, members=("x", "y")), b"\x00", ""),
        (column(254, size=4, collation=63), b"\x01a", "YQAAAA=="),
        (column(254, size=4, collation=8), b"\x02\xe9\x81", "é\x81"),
        (column(15, size=1200, collation=255), b"\x02\x00\xc3\xa9", "é"),
        (column(252, size=2, collation=63), b"\x01\x00\xff", "/w=="),
        (column(10), b"\x2f\xc3\x0f", "2017-09-15Z"),
        (column(17, scale=2), b"\x00\x00\x00\x01\x32", "1970-01-01T00:00:01.5Z"),
        (column(19, scale=1), b"\x7f\xff\xff\xce", "-00:00:00.5"),
    ],
)
def test_values(logged: LoggedColumn, stored: bytes, value: Canonical) -> None:
    """Each stored form becomes its canonical value, exactly."""
    got = decoded(logged, stored)
    assert (type(got), got) == (type(value), value)


@pytest.mark.parametrize(
    ("logged", "stored"),
    [
        (column(10), b"\x00\x00\x00"),
        (column(17), b"\x00\x00\x00\x00"),
        (column(18), b"\x80\x00\x00\x00\x00"),
        (column(15, size=40, collation=255), b"\x01\xff"),
    ],
    ids=["zero date", "zero timestamp", "zero datetime", "not utf-8"],
)
def test_values_without_canonical_form_are_refused_not_guessed(logged: LoggedColumn, stored: bytes) -> None:
    """They become neither NULL nor 1970; the image is refused with its bytes, and the row behind it is read."""
    table = LoggedTable(database="d", table="t", columns=(logged, replace(column(1), name="n")), primary_key=(1,))
    first, second = RowDecoder(table, CHARSETS).images((b"\xfc" + stored + b"\x07") * 2, b"\xff")
    assert isinstance(first, Refused)
    assert first == second
    assert first.values["n"] == 7
    assert str(first.values["c"]) in stored.hex()
    assert first.why.startswith("column c: ")


def test_null_is_not_a_value() -> None:
    """The null bitmap counts the logged columns only, and a NULL takes no bytes."""
    hidden = LoggedColumn(name="!hidden!x", code=3, hidden=True)
    columns = (column(1), hidden, replace(column(1), name="n"))
    table = LoggedTable(database="d", table="t", columns=columns, primary_key=(2,))
    assert list(RowDecoder(table, CHARSETS).images(b"\xfd\x09", b"\xfd")) == [{"c": None, "n": 9}]


@pytest.mark.parametrize(
    ("data", "present", "said"),
    [
        (b"\xfe\x01", b"\x00", "without column c"),
        (b"\xfe", b"\xff", "table map"),
        (b"\xfe\x01\xfe", b"\xff", "table map"),
    ],
)
def test_bytes_that_do_not_fit_are_fatal(data: bytes, present: bytes, said: str) -> None:
    """A partial image or a broken event stops the capture; skipping it would lose rows."""
    table = LoggedTable(database="d", table="t", columns=(column(1),), primary_key=(0,))
    with pytest.raises(Fatal, match=said):
        list(RowDecoder(table, CHARSETS).images(data, present))


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, Decimal]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(30, precision)))
    unscaled = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    return precision, scale, Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))


@given(decimals())
def test_decimals_come_back(case: tuple[int, int, Decimal]) -> None:
    """DECIMAL of every precision and scale, written as MySQL writes it, reads as the same digits."""
    precision, scale, number = case
    digits = f"{abs(int(number.scaleb(scale, context=_WIDE))):0{precision}d}"
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    stored = bytearray()
    lead = len(whole) % 9
    groups = [whole[:lead], *(whole[i : i + 9] for i in range(lead, len(whole), 9))]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    for group in groups:
        stored += int(group or 0).to_bytes(DIGIT_BYTES[len(group)], "big")
    if number < 0:
        stored = bytearray(byte ^ 0xFF for byte in stored)
    stored[0] ^= 0x80
    text = (whole.lstrip("0") or "0") + ("." + fraction if scale else "")
    assert decoded(column(246, precision=precision, scale=scale), bytes(stored)) == ("-" if number < 0 else "") + text


@given(st.integers(-3020399 * 10**6, 3020399 * 10**6), st.integers(0, 6))
def test_times_come_back(micros: int, digits: int) -> None:
    """TIME of every precision, negative fractions included, as MySQL packs it."""
    unit = 10 ** (6 - digits)
    micros = micros // unit * unit if micros >= 0 else -(-micros // unit * unit)
    seconds, rest = divmod(abs(micros), 10**6)
    width = (digits + 1) // 2
    packed = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) << 8 * width
    packed |= rest // 10 ** (6 - 2 * width)
    stored = (0x800000 << 8 * width) + (-packed if micros < 0 else packed)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    fraction = f"{rest:06}".rstrip("0")
    expected = ("-" if micros < 0 else "") + text + ("." + fraction if fraction else "")
    assert decoded(column(19, scale=digits), stored.to_bytes(3 + width, "big")) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_json_doubles_read_back(value: float) -> None:
    """A double inside JSON is printed so that it reads back as itself, sign of zero included."""
    assert struct.pack("<d", float(double_text(value))) == struct.pack("<d", value)


@pytest.mark.parametrize("stored", [b"\x00\x01\x00\xff", b"\x0c", b"\x0e", b"\x0c\x02\xff\xfe", b"\x05\x01"])
def test_broken_json_is_refused(stored: bytes) -> None:
    """Bytes that are no document are quarantined, never a guess."""
    with pytest.raises(Unrepresentable):
        json_text(stored)
