"""The kernel and the specification give the same result for every record, whatever its bytes; neither fails on one."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from struct import pack
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from cdc.model.geometry import point_of
from joins.engine.spark_kernel import _step, with_conditions
from joins.engine.spark_session import close_session, open_session
from joins.kernel.program import program_of
from joins.query.plan import Plan
from joins.runtime.records import (
    GONE,
    REFUSED,
    Message,
    RefusedRecord,
    load,
    seen,
    trace_of,
    unpack,
    values_of,
)
from joins.steps.envelope import read_envelope
from joins.steps.route import Changed, LogReader, Router, Truncated, latest_message
from tests.cdc.test_envelopes import GOLDEN
from tests.joins.joincase import Case

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(900)]

COLUMNS = {
    "id": "int", "tiny": "tinyint?", "big": "bigint?", "huge": "bigint unsigned?", "price": "decimal(6,2)?",
    "whole": "decimal(4,0)?", "name": "varchar(20)?", "f": "double?", "b": "bit(1)?", "day": "date?",
    "at": "datetime(3)?", "took": "time?", "doc": "json?", "raw": "varbinary(9)?", "ref": "int?",
    "place": "point?", "shape": "geometry?", "vec": "vector(3)?",
}  # fmt: skip
LINE = base64.b64encode(pack("<BIIdddd", 1, 2, 2, 0.1, 1e20, 123456789.123456789, 5e-324)).decode()
ROW: dict[str, Any] = {
    "id": 7, "tiny": -3, "big": 2**40, "huge": 2**64 - 1, "price": "2.99", "whole": "12", "name": 'a "ü" \\ 😀\n',
    "f": 1.5, "b": True, "day": "2026-01-31Z", "at": "2026-01-31T10:00:00.5Z", "took": "-12:30:00", "doc": '{"a": 1}',
    "raw": "AAEC", "ref": 3, "unused": 5,
    "place": point_of(2.35, -48.85e-9, 4326), "shape": {"wkb": LINE, "srid": None}, "vec": [1.5, -2, 1e-7],
}  # fmt: skip
# nothing in it needs more than a copy of its bytes, so that `PlainEnvelope` reads it
PLAIN = {**ROW, "name": "a ü", "doc": "[1]", "place": None, "shape": None, "vec": None}
SOURCE = {"name": "law.shop", "db": "shop", "table": "t", "ts_ms": 1000, "sequence": 9, "snapshot": "false"}
ENVELOPE = {
    "before": {**ROW, "price": "1.00"},
    "after": ROW,
    "source": SOURCE,
    "op": "u",
    "ts_ms": 1,
    "x": [{"y": 1.5}],
}
PLAINLY = {**ENVELOPE, "before": {**PLAIN, "price": "1.00"}, "after": PLAIN}
KEY = b'{"id": 7}'
WKB = (
    pack(">BIdd", 0, 1, 1.5, 2), pack("<BIIdd", 1, 0x20000001, 4326, 1, 2), pack("<BII", 1, 2, 0),
    pack("<BII", 1, 7, 0), pack("<BIIIdd", 1, 3, 1, 1, 1, 2), pack("<BIIBIdd", 1, 4, 1, 1, 1, 1, 2),
    pack("<BIdd", 1, 1, float("nan"), float("inf")),
    pack("<BII", 1, 7, 1) + pack(">BIIdd", 0, 2, 1, 3, 4), pack("<BII", 1, 7, 1) * 40, pack("<BII", 1, 2, 2**31),
    pack("<BIdd", 1, 1001, 1, 2), pack("<BIddB", 1, 1, 1, 2, 0), pack("<BI", 1, 1), b"", pack("<BII", 1, 6, 9),
    *(pack("<BIdd", 1, 1, one, -one) for one in (2e-3, 1e23, 2.2250738585072014e-308, 9007199254740993.0, 4.35, 2e300)),
)  # fmt: skip
# every type gets all of them: values of other producers, values from before a column was changed, and invalid ones
VALUES = [
    "null", "true", "false", "0", "-0", "1", "-1", "5", "127", "128", "-129", "2147483647", "2147483648",
    "-2147483649", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
    "-9223372036854775809", "1" * 30, "1" + "0" * 29, "1" * 400, "9" * 5000, "0.0", "-0.0", "1.0", "2.99", "2.990",
    "2.995", "1e2", "1E5", "1e-3", "1e15", "123456789012345.0", "0.1234567890123456789", "0.30000000000000004",
    "1e-400", "1e308", "1e400", "-1e999", '""', '"5"', '"05"', '"-5"', '"5.00"', '"2.99"', '"2.9"', '"2.990"',
    '"2.995"', '"9999.99"', '"10000.00"', '"-0"', '"-0.00"', '"1e2"', '" 5"', '"5 "', '"5."', '".5"', '"+5"', '"NaN"',
    '"١"', '"' + "7" * 101 + '"', '"abc"', '"ü"', '"2026-01-31"', '"2026-01-31Z"', '"2026-01-31T00:00:00Z"',
    '"2026-01-31T10:00:00Z"', '"2026-01-31T10:00:00.500Z"', '"2026-01-31 10:00:00.25"', '"2026-01-31T10:00:00+02:00"',
    '"2026-01-31T10:00:00.Z"', '"2026-01-31T00:00:00.000Z"', '"2026-1-31"', '"2026-01-31T10:00:00.1234567890Z"',
    '"10:00:00"', "{}", "[]", '{"a": [1, {"b": null}]}', "[1e400]", '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"',
    '"\\ud83d\\u0041"', '"\\ude00\\ud83d"', '"\\\\ud800"', '"\\u00e9"', '"\\x"', '"\\u12"', "NaN", "Infinity",
    "-Infinity", "01", "+1", "1.", ".5", "--1", "tru", "'a'", "undefined", "", "[1, 2.5, -1e20]", "[1, null]",
    '"(1.5,-2e-7)"', '"(1e+999,0)"', '"(1,2"', '"(1, 2)"', '"(1.,2)"', '"(1d,2)"', '"(NaN,1)"',
    "[1, [2]]", '["1", 2]', "[01]", "[1", '{"wkb": null}', '{"wkb": "AQ=="}', '{"wkb": "!"}', '{"wkb": "AQ"}',
    *(
        orjson.dumps(value).decode()
        for value in (
            *(point_of(x, y, srid) for x, y, srid in ((0.1, -0.0, 0), (1e15, 1e-15, 3857), (9e-16, 1e14, 2**32 - 1))),
            *({"wkb": LINE, "srid": srid} for srid in (-1, 1.5, "1", True, 2**32, 0)),
            *({"wkb": base64.b64encode(wkb).decode()} for wkb in WKB),
        )
    ),
]  # fmt: skip
FIELDS = ["before", "after", "source", "op", "ts_ms", "transaction", "payload"]
ORIGIN = ["ts_ms", "sequence", "partial", "db", "name"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    # few rows, as in test_conformance.py
    session = open_session("poison", partitions=2, scratch=scratch, jvm="-XX:TieredStopAtLevel=1")
    yield session
    close_session(session)


def plan_of(delivery: str = "exactly_once") -> Plan:
    """Return a plan with all types in one table, which is joined to itself."""
    columns = ", ".join(f"t.{name}" for name in COLUMNS)
    return Case(
        tables={"shop.t": {"key": ["id"], **COLUMNS}},
        query=f"SELECT {columns}, o.name AS other FROM shop.t t LEFT JOIN shop.t o ON o.id = t.ref",
        row_key=["id"],
        history=[],
        delivery=delivery,
    ).plan()


def _replaced(of: dict[str, Any], name: str, text: str) -> str:
    """Return an object's JSON with that text, JSON or not, as one value."""
    mark = "@@@"
    return json.dumps({**of, name: mark}, ensure_ascii=False).replace(f'"{mark}"', text)


def poisoned(chance: random.Random) -> Iterator[bytes]:
    """Yield records that were envelopes before they were damaged."""
    good = json.dumps(ENVELOPE)
    yield good.encode()
    yield json.dumps(PLAINLY, ensure_ascii=False).encode()
    yield orjson.dumps(PLAINLY)
    for op in ("c", "u", "d", "r", "t", "m", "", "cc", "😀"):
        yield json.dumps({**ENVELOPE, "op": op}).encode()
        for gone in ("before", "after"):
            yield json.dumps({**ENVELOPE, "op": op, gone: None}).encode()
    for text in VALUES:
        for column in (*COLUMNS, "unused"):
            row, envelope = chance.choice([(ROW, ENVELOPE), (PLAIN, PLAINLY)])
            after, before = _replaced(row, column, text), _replaced(row, column, text)
            yield _replaced(envelope, "after", after).encode()
            yield _replaced({**envelope, "op": "d"}, "before", before).encode()
        for field in FIELDS:
            yield _replaced(chance.choice([ENVELOPE, PLAINLY]), field, text).encode()
        for field in ORIGIN:
            envelope = chance.choice([ENVELOPE, PLAINLY])
            yield _replaced(envelope, "source", _replaced(SOURCE, field, text)).encode()
        yield text.encode()
        yield (good + text).encode()
        yield (text + good).encode()
        yield good.replace('"x"', text).encode()
    for field in (*FIELDS, *ROW):  # twice, the first or the last with a wrong type; and missing
        for text in ("5", "null", "{}", '"u"'):
            yield f'{{"{field}": {text}, {good[1:]}'.encode()
            yield f'{good[:-1]}, "{field}": {text}}}'.encode()
        yield json.dumps({k: v for k, v in ENVELOPE.items() if k != field}).encode()
        row = {k: v for k, v in ROW.items() if k != field}
        yield json.dumps({**ENVELOPE, "before": row, "after": row}).encode()
    for depth in (3, 40, 60, 61, 62, 63, 64, 65, 66, 900, 1000, 1100, 100_000):
        yield _replaced(ENVELOPE, "x", "[" * depth + "]" * depth).encode()
        yield _replaced(ENVELOPE, "after", '{"a":' * depth + "1" + "}" * depth).encode()
        yield b"[" * depth
    payload = {"schema": {"type": "struct", "fields": [good]}, "payload": ENVELOPE}
    yield json.dumps(payload).encode()
    yield json.dumps({"payload": payload, "op": 5}).encode()
    whole = json.dumps(ENVELOPE, ensure_ascii=False).encode()
    for encoding in ("utf-16", "utf-16-le", "utf-32-be", "utf-8-sig", "latin-1"):
        yield json.dumps(ENVELOPE, ensure_ascii=False).replace("😀", "").encode(encoding)
    for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x00", b"\x1f", b"\x7f"):
        yield whole.replace(b"AAEC", bad)
        yield whole.replace(b'"x"', b'"' + bad + b'"')
        yield whole + bad
        yield bad + whole
    plain = orjson.dumps(PLAINLY)
    for _ in range(400):
        cut = chance.choice([whole, plain])
        yield cut[: chance.randrange(len(cut))]
    for _ in range(4000):
        flipped = bytearray(chance.choice([whole, good.encode(), plain, plain]))
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            flipped[chance.randrange(len(flipped))] = chance.choice(
                [chance.randrange(256), ord(chance.choice('{}[]",:\\0'))]
            )
        yield bytes(flipped)


def specified(plan: Plan, records: list[tuple[bytes | None, bytes]]) -> list[set[Any]]:
    """Return the result of `joins.steps.route` for each record, then its messages for `latest`, which need no
    offset."""
    reader = LogReader(plan, {}, {plan.topics[0]: {0: len(records) // 2}})
    router, reported = Router(plan.last, lambda _, __, rows: [True] * len(rows)), [set[Any]() for _ in (*records, 0)]
    for offset, (key, value) in enumerate(records):
        found = reader.read(plan.topics[0], 0, offset, key, value)
        if isinstance(found, RefusedRecord):
            reported[offset].add(REFUSED)
        elif isinstance(found, Changed) and found.source.needs_latest:
            message = latest_message(found)
            reported[-1].add(_plain(Message(b"\x80\x00" + message.k, *message[1:])))
        elif isinstance(found, Changed):
            reported[offset] |= {_plain(message) for message in router.route([found])}
        else:
            assert isinstance(found, Truncated), "no record is a tombstone"
            reported[offset].add("t")
    return reported


def kernels(spark: SparkSession, plan: Plan, records: list[tuple[bytes | None, bytes]]) -> list[set[Any]]:
    """Return the result of `Router.java`; markers, which read the log again, are omitted."""
    topic, reported = plan.topics[0], [set[Any]() for _ in (*records, 0)]
    (part,) = program_of(plan, {}, ends={topic: {0: len(records) // 2}})
    wanted = []
    for offset, (key, value) in enumerate(records):
        if _marks(value):
            reported[offset].add("t")
        else:
            wanted.append((topic, 0, offset, None if key is None else bytearray(key), bytearray(value)))
    log = spark.createDataFrame(wanted, "topic string, partition int, offset long, key binary, value binary")
    for row in _step("Router", log.coalesce(1), with_conditions(part.levels[0])).collect():
        message = load(bytes(row.k), bytes(row.m))
        if message.op == REFUSED:
            reported[orjson.loads(message.p)[2]].add(REFUSED)
        else:
            latest = plan.sources[0].needs_latest
            reported[-1 if latest else message.v].add(_plain(message, packed=latest))
    return reported


def _marks(value: bytes) -> bool:
    try:
        return read_envelope(value).op == "t"
    except ValueError:
        return False


def _plain(message: Message, *, packed: bool = False) -> Any:
    """Return a message in comparable form: numbers by value, key texts by bytes. `packed`: the kernel's messages to
    `latest`, which contain a place for the trace, and each value separately."""
    if message.op == GONE:
        return message.k, GONE, message.r
    if packed:
        trace, texts = seen(0, int.from_bytes(message.p[8:16], signed=True)), unpack(message.p[16:])
        values = tuple(_typed(orjson.loads(text)) for text in texts)
    else:
        trace, values = trace_of(message.p), tuple(map(_typed, values_of(message.p)))
    return message.k, message.op, message.r, message.p[:8], trace, values


def _typed(value: Any) -> Any:
    return isinstance(value, bool), tuple(map(_typed, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("delivery", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.matrix)])
def test_router_and_reader_say_the_same_of_every_record(spark: SparkSession, delivery: str) -> None:
    """Flipped bytes, cut texts, huge numbers, wrong types, half pairs, other encodings: same messages, or refused."""
    plan, chance = plan_of(delivery), random.Random(7)
    keys = [KEY, KEY, None, b"{}", b"null", b"", b'{"id": "\\ud800"}', b'{"id": 1e400}', b'{"id": 99999999999}']
    records = [(chance.choice(keys), value) for value in poisoned(chance)]
    expected, got = specified(plan, records), kernels(spark, plan, records)
    wrong = [(r, e - g, g - e) for r, e, g in zip([*records, "latest"], expected, got, strict=True) if e != g]
    assert not wrong, f"{len(wrong)} of {len(records)}; the first: {wrong[0]}"
    refused = sum(one == {REFUSED} for one in got)
    assert 1000 < refused < len(records) - 1000  # the test sees both verdicts


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_both_read_what_our_writer_writes(spark: SparkSession, delivery: str) -> None:
    """The golden file of capture's format, with every op: same messages, and nothing refused."""
    plan = plan_of(delivery)
    records: list[tuple[bytes | None, bytes]] = [(KEY, value) for value in GOLDEN.read_bytes().splitlines()]
    expected, got = specified(plan, records), kernels(spark, plan, records)
    assert got == expected
    assert not any(REFUSED in one for one in got)
    if delivery == "exactly_once":
        assert all(got[:-1]), "every record is read"
    else:
        assert len(got[-1]) >= 4, "rows that are put, empty ones and ends, for `latest`"
