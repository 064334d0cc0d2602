"""Properties of groups: whatever rows were added and removed, in whatever batches and partitions, a group's result
equals
a naive computation over the remaining rows, and no state remains after the last row."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.model.errors import Fatal
from cdc.model.types import NOT_FINITE, Canonical, Kind, LogicalType
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Bag, Grouping, Result, Total
from joins.query.plan import SINK
from joins.query.value_types import FLOAT64, INT64
from joins.runtime.records import (
    DIM_GONE,
    DIM_PUT,
    REFUSED,
    ROW_GONE,
    ROW_PUT,
    Message,
    text_of,
    values_of,
    values_text,
    with_part,
)
from joins.steps.aggregate import GroupState, aggregate_step
from joins.steps.change_detector import Transition
from joins.steps.contributions import combined
from joins.steps.exact import double_text

DECIMAL = LogicalType(kind="decimal", precision=6, scale=2)
MEAN = LogicalType(kind="decimal", precision=12, scale=6)
_PLAIN: list[Kind] = ["int32", "uint64", "float64", "string", "date", "datetime", "time", "bytes", "bool"]
KINDS: dict[str, LogicalType] = {**{kind: LogicalType(kind=kind) for kind in _PLAIN}, "decimal": DECIMAL}
NUMBERS = ("int32", "uint64", "float64", "decimal")


def _moment(day: int, micros: int) -> str:
    text = (dt.datetime(2024, 1, 1) + dt.timedelta(days=day, microseconds=micros)).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def _time(micros: int) -> str:
    seconds, rest = divmod(abs(micros), 10**6)
    text = f"{'-' * (micros < 0)}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:06}".rstrip("0") if rest else text


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int32": st.integers(-4, 12),
    "uint64": st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    "float64": st.sampled_from([0.1, 0.2, 0.3, -0.7, 1e16, 1e-9, 1.0, 3.0, 1e300, 0.0, *NOT_FINITE]),
    "string": st.sampled_from(["", "a", "B", "é", "\U0001f426", "\uffee", 'q"\\\n', "x" * 90]),
    "date": st.sampled_from(["2024-02-29Z", "1999-12-31Z", "2024-03-01Z"]),
    "datetime": st.builds(_moment, st.integers(0, 1), st.sampled_from([0, 500_000, 250_000, 1])),
    "time": st.builds(_time, st.sampled_from([0, 500_000, -500_000, 3_600_000_000 * 100, 3_600_000_000 * 99, -1])),
    "bytes": st.builds(lambda b: base64.b64encode(b).decode(), st.binary(max_size=2)),
    "bool": st.booleans(),
    "decimal": st.sampled_from(["0.00", "0.01", "12.30", "-9.99", "9999.99", "2.00", "10.00"]),
}
ROW = st.tuples(*(st.none() | VALUES[kind] for kind in KINDS))
NAMES = list(KINDS)


def _grouping() -> Grouping:
    """Return one group with every function over every type, since each keeps its own values."""
    totals = tuple(Total(argument=i, type=type_) for i, type_ in enumerate(KINDS.values()))
    made: list[Bag] = []
    for i, type_ in enumerate(KINDS.values()):
        made += [Bag(arguments=(i,), types=(type_,), needed=1, descending=(turned,)) for turned in (False, True)]
        other = (i + 3) % len(NAMES)
        pair = (type_, KINDS[NAMES[other]])
        made.append(Bag(arguments=(i, other), types=pair, needed=1, descending=(False, True)))
        made.append(Bag(arguments=(i, other), types=pair, needed=0, descending=(True, False)))
    results = [Result(function="count_rows", of=0, type=INT64, text="count(*)")]
    for i, (name, type_) in enumerate(KINDS.items()):
        results.append(Result(function="count", of=i, type=INT64, text=f"count({name})"))
        if name in NUMBERS:
            results.append(Result(function="sum", of=i, type=_sum_type(type_), text=f"sum({name})"))
            mean = MEAN if type_.kind == "decimal" else FLOAT64
            results.append(Result(function="avg", of=i, type=mean, text=f"avg({name})"))
    for i, bag in enumerate(made):
        wanted: list[str] = ["count_distinct", "min", "max", "collect_list", "collect_set"]
        if len(bag.arguments) == 2:
            wanted = ["min_by", "max_by", "collect_list", "count_distinct"]
        elif bag.types[0].kind in ("int32", "decimal", "float64"):
            wanted.append("sum_distinct")
        for function in wanted:
            type_ = INT64 if function == "count_distinct" else bag.types[-1]
            type_ = _sum_type(type_) if function == "sum_distinct" else type_
            results.append(Result(function=function, of=i, type=type_, text=f"{function}({bag.arguments})"))
    return Grouping(
        change_detector=4, number=5, keys=(0,), key_types=(INT64,), arguments=tuple(range(1, 1 + len(NAMES))),
        totals=totals,
        bags=tuple(made), results=tuple(results), always=None,
    )  # fmt: skip


def _sum_type(type_: LogicalType) -> LogicalType:
    return {"decimal": DECIMAL, "float64": FLOAT64}.get(type_.kind, INT64)


GROUP = _grouping()
KEY: dict[str, Callable[[Any], Any]] = {
    "float64": lambda value: (value == "NaN", 0.0 if value == "NaN" else float(value)),
    "decimal": Decimal, "string": str.encode, "bytes": base64.b64decode,
    "datetime": lambda text: dt.datetime.fromisoformat(text.removesuffix("Z").ljust(19)),
    "time": lambda text: _micros(text),
}  # fmt: skip


def _micros(text: str) -> Decimal:
    hours, minutes, seconds = text.lstrip("-").split(":")
    found = Decimal(hours) * 3600 + Decimal(minutes) * 60 + Decimal(seconds)
    return -found if text.startswith("-") else found


def limit(values: Sequence[Canonical]) -> str:
    """Return the sum or mean of doubles some of which are not finite."""
    there = {str(value) for value in values if value in NOT_FINITE}
    return there.pop() if len(there) == 1 else "NaN"


class Naive:
    """Computes the results from the existing rows."""

    def __init__(self, rows: Sequence[Sequence[Canonical]]) -> None:
        self.rows = rows

    def tuples(self, bag: Bag) -> list[tuple[Canonical, ...]]:
        """Return the tuples with repetitions, sorted by one value after the other, the last one first (stable sort)."""
        found = [tuple(row[i] for i in bag.arguments) for row in self.rows]
        found = [values for values in found if None not in values[: bag.needed]]
        for place in reversed(range(len(bag.arguments))):
            of: Callable[[Any], Any] = KEY.get(bag.types[place].kind, lambda value: value)
            nulls = [one for one in found if one[place] is None]
            there = [one for one in found if one[place] is not None]
            there.sort(key=lambda one: of(one[place]), reverse=bag.descending[place])
            found = there + nulls if bag.descending[place] else nulls + there
        return found

    def value(self, result: Result) -> Any:
        """Return the value of a result; `...` if it does not fit."""
        if result.function == "count_rows":
            return len(self.rows)
        if BY_NAME[result.function].reads == "total":
            total = GROUP.totals[result.of]
            there = [row[total.argument] for row in self.rows if row[total.argument] is not None]
            if result.function == "count":
                return len(there)
            if any(v in NOT_FINITE for v in there):
                return limit(there)
            exact = sum((Fraction(Decimal(str(v)) if total.type.kind == "decimal" else v) for v in there), Fraction())  # type: ignore[arg-type]
            return self.fitting(exact / (len(there) if result.function == "avg" else 1), result) if there else None
        tuples = self.tuples(GROUP.bags[result.of])
        once = list(dict.fromkeys(tuples))
        match result.function:
            case "count_distinct":
                return len(once)
            case "sum_distinct" if any(v in NOT_FINITE for (v,) in once):
                return limit([v for (v,) in once])
            case "sum_distinct":
                exact = sum((Fraction(Decimal(str(v)) if isinstance(v, str) else v) for (v,) in once), Fraction())  # type: ignore[arg-type]
                return self.fitting(exact, result) if once else None
            case "min" | "min_by":
                return tuples[0][-1] if tuples else None
            case "max" | "max_by":
                return tuples[-1][-1] if tuples else None
            case "collect_list":
                return [one[-1] for one in tuples if one[-1] is not None]
        return [one[-1] for one in once if one[-1] is not None]

    def fitting(self, exact: Fraction, result: Result) -> Any:
        """Return the number in the result's type."""
        if result.type.kind == "float64":
            try:
                return float(exact)
            except OverflowError:
                return ...
        if result.type.kind == "int64":
            return int(exact) if exact < 2**63 else ...
        with localcontext() as context:
            context.prec = 60
            found = (Decimal(exact.numerator) / exact.denominator).quantize(
                Decimal(1).scaleb(-result.type.scale), ROUND_HALF_UP
            )
        digits = len(found.as_tuple().digits)
        return str(found).replace("-0.00", "0.00") if digits <= result.type.precision else ...


States = dict[bytes, GroupState]


def contributed(rows: Sequence[Canonical] | None) -> bytes | None:
    return None if rows is None else with_part(b"7", text_of(list(rows)))


def report(
    group: Grouping, states: States, found: Sequence[Transition], chance: random.Random, target: int = 9
) -> list[Message]:
    """Pass a batch of changes, summed in up to three small partitions, through the group's step."""
    places: list[list[Transition]] = [[] for _ in range(3)]
    for one in found:
        chance.choice(places).append(one)
    partials = [message for place in places for message in combined(group, place, chance.choice([1, 5, 1000]))]
    chance.shuffle(partials)
    assert {message.k for message in partials} <= {b"\x057"}
    if not partials:
        return []
    state, reported = aggregate_step(group, target, "wide", b"\x057", states.get(b"\x057"), partials)
    states.pop(b"\x057", None)
    states |= {} if state is None else {b"\x057": state}
    return reported


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[tuple[Canonical, ...] | None, tuple[Canonical, ...] | None]]]:
    """Generate batches of (before, after) of rows."""
    there: list[tuple[Canonical, ...]] = []
    batches = []
    pool = draw(st.lists(ROW, min_size=1, max_size=8))
    for _ in range(draw(st.integers(1, 6))):
        batch: list[Any] = []
        for _ in range(draw(st.integers(1, 8))):
            goes: bool = draw(st.booleans())
            before = there.pop(draw(st.integers(0, len(there) - 1))) if there and goes else None
            stays: bool = draw(st.booleans())
            after = draw(st.sampled_from(pool)) if before is None or stays else None
            if after is not None:
                there.append(after)
            batch.append((before, after))
        batches.append(batch)
    batches.append([(row, None) for row in there])
    return batches


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(0, 2**32))
def test_a_group_says_what_its_rows_say(history: list[list[tuple[Any, Any]]], seed: int) -> None:
    """Every function over every type, NULLs and both orders; after the last row is deleted, no state is left."""
    chance, states, rows = random.Random(seed), States(), Counter[Any]()
    reported: bytes | None = None
    for number, batch in enumerate(history):
        for before, after in batch:
            rows.update([after] if after is not None else [])
            rows.subtract([before] if before is not None else [])
        found = [Transition(contributed(before), contributed(after), number) for before, after in batch]
        out = report(GROUP, states, found, chance)
        naive = Naive(list(rows.elements()))
        if not naive.rows:
            assert [(one.k, one.op) for one in out] == ([(b"\x097", DIM_GONE)] if reported is not None else [])
            reported = None
            continue
        expected = [naive.value(result) for result in GROUP.results]
        texts = json.loads(b"[" + (values_text(out[0].p) if out else reported or b"") + b"]")
        assert texts == [7, *(None if value is ... else value for value in expected)]
        if not out:  # its result did not change
            continue
        assert (out[0].k, out[0].op, out[0].v) == (b"\x097", DIM_PUT, 1)
        assert values_text(out[0].p) != reported
        reported = values_text(out[0].p)
        dead_letters = [orjson.loads(one.p)[3] for one in out[1:] if one.op == REFUSED]
        failed = zip(GROUP.results, expected, strict=True)
        assert dead_letters == [f"not computed: {result.text}" for result, value in failed if value is ...]
    assert states == {}


LARGE = Bag(arguments=(0,), types=(INT64,), needed=1, descending=(False,))


def _large(always: str | None = None) -> Grouping:
    results = tuple(
        Result(function=function, of=0, type=INT64, text=function)
        for function in ("count_rows", "min", "max", "count_distinct")
    )
    return Grouping(
        change_detector=4, number=5, keys=(0,), key_types=(INT64,), arguments=(1,), totals=(), bags=(LARGE,),
        results=results,
        always=always,
    )  # fmt: skip


def _differences(numbers: Sequence[int], before: bool) -> Iterator[Transition]:
    for number in numbers:
        text = contributed([number])
        yield Transition(text, None, 0) if before else Transition(None, text, 0)


@pytest.mark.parametrize("kind", ["rows", "values"])
def test_more_gone_than_there_were_is_a_fault(kind: str) -> None:
    """Nothing is clamped: an impossible count stops the query, and the state stays as it was."""
    states, group, chance = States(), _large(), random.Random(0)
    report(group, states, list(_differences([1, 2], False)), chance)
    wrong = list(_differences([1, 1, 2] if kind == "rows" else [3], True))
    with pytest.raises(Fatal, match="table wide: group 7 has lost more rows than it had"):
        report(group, states, wrong, chance)
    (reported,) = report(group, states, list(_differences([1], True)), chance)
    assert values_of(reported.p) == [7, 1, 2, 2, 1]


def test_a_group_of_everything_is_always_there() -> None:
    """Its row is emitted in the first batch, and not again while nothing changes; without rows it has empty results."""
    states, group, chance = States(), _large(always="7"), random.Random(0)
    (reported,) = report(group, states, [], chance, SINK)
    assert (reported.op, values_of(reported.p)) == (ROW_PUT, [7, 0, None, None, 0])
    assert report(group, states, [], chance, SINK) == []
    (reported,) = report(group, states, list(_differences([4], False)), chance, SINK)
    assert values_of(reported.p) == [7, 1, 4, 4, 1]
    (reported,) = report(group, states, list(_differences([4], True)), chance, SINK)
    assert (reported.op, values_of(reported.p)) == (ROW_PUT, [7, 0, None, None, 0])


def test_the_last_row_of_a_group_takes_it_away() -> None:
    states, group, chance = States(), _large(), random.Random(0)
    report(group, states, list(_differences([4], False)), chance, SINK)
    (reported,) = report(group, states, list(_differences([4], True)), chance, SINK)
    assert (reported.k, reported.op, reported.v) == (b"\xff7", ROW_GONE, 0)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_reads_back_as_it_was(value: float) -> None:
    text = double_text(value).decode()
    assert json.loads(text) == value
    assert len(text.lower().partition("e")[0].replace("-", "").replace(".", "").strip("0")) <= 17


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.30000000000000004"),
        (0.3, "0.3"),
        (100.0, "100"),
        (1e20, "1E+20"),
        (-0.0, "0"),
        (1.5e-7, "1.5E-7"),
        (2.0**53, "9007199254740992"),
        (1e15, "1000000000000000"),
        (1e16, "1E+16"),
        (12345678901234568.0, "12345678901234568"),
        (-2.5, "-2.5"),
        (5e-324, "4.94065645841247E-324"),
    ],
)
def test_texts_of_doubles(value: float, text: str) -> None:
    """The kernel writes the same texts (`KernelBags.java`)."""
    assert double_text(value) == text.encode()
