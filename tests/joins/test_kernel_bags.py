"""The kernel without Spark, built as on machines without a JDK: bags of tuples in pages, values as bytes in the
specification's order, iterators that are closed."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest

from cdc.model.types import NOT_FINITE, Canonical, Kind, LogicalType
from joins.kernel import proc_kernel
from joins.query.group import Bag, TimeBound
from joins.query.value_types import time_of
from joins.runtime.records import text_of
from joins.steps.exact import double_text
from joins.steps.ordered import order_of
from joins.steps.temporal import span_of
from tests.joins.test_kernel_build import STEPS

pytestmark = pytest.mark.long
KINDS: list[Kind] = ["bool", "int8", "int64", "uint64", "float64", "date", "datetime", "time", "string", "bytes"]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile by Janino, from pyspark's jars: its dialect has no lambdas."""
    folder, java = tmp_path_factory.mktemp("classes"), shutil.which("java")
    assert java is not None
    with pytest.MonkeyPatch.context() as patch:
        ours = [
            Path(__file__).with_name(f"{name}.java")
            for name in ("KernelBags", "KernelSpans", "KernelPace", "OpenIterators")
        ]
        every = [*proc_kernel.sources(), *ours]
        patch.setattr(proc_kernel, "sources", lambda: every)
        proc_kernel.with_janino(java, folder)
    return folder


def ran(classes: Path, *arguments: str, main: str = "KernelBags", given: str = "") -> str:
    path = f"{classes}:{proc_kernel._classpath()}"
    command = ["java", "-Dfile.encoding=UTF-8", "-cp", path, f"tailorbird.kernel.{main}", *arguments]
    done = subprocess.run(command, input=given.encode(), capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_kernel_is_built_without_a_jdk(classes: Path) -> None:
    """With only a Java runtime, the same classes are built."""
    assert {file.stem for file in (classes / "tailorbird" / "kernel").glob("*.class")} >= STEPS


def test_no_iterator_is_left_open(classes: Path) -> None:
    """Spark keeps an unfinished iterator over state open until the task ends: 120 MB for 20,000 keys. A join leaves
    none,
    removes a key with its last row, and reads no more for it than was changed."""
    assert ran(classes, main="OpenIterators") == "none open\n"


@pytest.mark.parametrize("seeds", [("0", "1"), pytest.param(("2", "3"), marks=pytest.mark.matrix)])
def test_bags_grow_and_shrink(classes: Path, seeds: tuple[str, str]) -> None:
    """Tens of thousands of tuples are added and removed: the bag equals a map of them, no page is too large, a change
    costs a few pages, and an empty bag leaves no state."""
    assert ran(classes, *seeds) == "all there\n"


def test_spans_are_those_of_the_specification(classes: Path) -> None:
    """Random conditions on the time, over dates of all years: the kernel finds the spans of the specification."""
    chance, rows, lines = random.Random(5), list[tuple[int, int]](), list[str]()
    day = 86_400_000_000
    for _ in range(3000):
        values = [value(chance.choice(["date", "datetime"]), chance), chance.choice([None, "2024-02-29T12:00:00.5Z"])]
        bounds = []
        for _ in range(chance.randint(1, 3)):
            unit = chance.choice(["", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"])
            bounds.append(
                TimeBound(
                    value=int(chance.random() < 0.1), operator=chance.choice(["<", "<=", "=", ">=", ">"]), unit=unit,
                    before=chance.choice([0, 0, day, -day, chance.randint(-(10**15), 10**15)]),
                    months=chance.randint(-30, 30) if unit in ("MONTH", "QUARTER", "YEAR") else 0,
                    after=chance.choice([0, 0, day, -day, chance.randint(-(10**15), 10**15)]) if unit else 0, text="",
                )
            )  # fmt: skip
        rows.append(span_of(bounds, values))
        lines.append(
            json.dumps({"bounds": [dataclasses.asdict(one) for one in bounds], "values": text_of(values).decode()})
        )
    found = [
        tuple(map(int, line.split()))
        for line in ran(classes, main="KernelSpans", given="\n".join(lines)).split("\n")[:-1]
    ]
    wrong = [one for one in zip(lines, rows, found, strict=True) if one[1] != one[2]]
    assert not wrong, wrong[:3]


@pytest.mark.parametrize(
    ("most", "batches", "limits"),
    [
        (200_000, "2000 1 500 1 1000 1 4000 1", [20_000, 40_000, 160_000, 200_000, 200_000]),  # a batch takes about 4 s
        (
            200_000,
            "8000 1 40000 1 400000 1 4000 1",
            [20_000, 10_000, 2500, 1000, 1000],
        ),  # a slow sink
        (200_000, "-10 0 1000 1 -90000 9 1000 1", [20_000, 20_000, 80_000, 80_000, 200_000]),  # small ones do not count
        (200_000, "100 64 100 256 100 9999", [20_000, 40_000, 20_000, 5000]),  # at most about 128 MiB
        (10, "10 0 90000 0 10 0", [10, 10, 10, 10]),
    ],
)
def test_pace(classes: Path, most: int, batches: str, limits: list[int]) -> None:
    """The limit of changes follows the time and the bytes of the batches that reach it."""
    printed = ran(classes, str(most), *batches.split(), main="KernelPace")
    assert [int(line) for line in printed.split()] == limits


def value(kind: Kind, chance: random.Random) -> Canonical:
    match kind:
        case "bool":
            return chance.random() < 0.5
        case "float64":
            if chance.random() < 0.2:
                return chance.choice(NOT_FINITE)
            return chance.choice([0.0, -0.0, 1e300, -1e-300, 5e-324, chance.gauss(0, 1), float(chance.randint(-9, 9))])
        case "date":
            return f"{chance.randint(1, 9999):04}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}Z"
        case "datetime":
            fraction = f".{chance.randint(1, 99):02}".rstrip("0") if chance.random() < 0.5 else ""
            return f"2024-01-01T00:00:{chance.randint(0, 3):02}{fraction.rstrip('.')}Z"
        case "time":
            return time_of(chance.randint(-3, 3) * 10 ** chance.randint(0, 12))
        case "string":
            return "".join(chance.choice('ab\0\1\2"\\\n/é\u2028€😀') for _ in range(chance.randint(0, 4)))
        case "bytes":
            return base64.b64encode(bytes(chance.choices([0, 1, 2, 255], k=chance.randint(0, 4)))).decode()
    low = 0 if kind == "uint64" else -(2 ** (int(kind[3:]) - 1))
    high = 2**64 - 1 if kind == "uint64" else -low - 1
    return chance.choice([0, low, high, chance.randint(low, high), chance.randint(max(low, -300), min(high, 300))])


def decimal(scale: int, chance: random.Random) -> str:
    digits = str(chance.randint(0, 10 ** chance.randint(1, 30))).rjust(scale + 1, "0")
    sign = "-" if chance.random() < 0.5 and int(digits) else ""
    return f"{sign}{digits[: len(digits) - scale]}{'.' * (scale > 0)}{digits[len(digits) - scale :]}"


def test_values_have_the_order_of_the_specification(classes: Path) -> None:
    """For every type, ascending and descending, with NULL: bytes compare as the values do, and decode to them."""
    chance = random.Random(0)
    lines, asked = [], []
    kinds: list[Kind] = [*KINDS, *KINDS, "decimal", "decimal"] * 5
    for kind in kinds:
        scale = chance.randint(0, 5)
        type_ = LogicalType(kind=kind, precision=38, scale=scale) if kind == "decimal" else LogicalType(kind=kind)
        turned, nullable = (chance.random() < 0.5, chance.random() < 0.5), chance.random() < 0.5
        bag = Bag(arguments=(0, 1), types=(type_, type_), needed=0 if nullable else 2, descending=turned)

        def one(kind: Kind = kind, scale: int = scale, nullable: bool = nullable) -> Canonical:
            if nullable and chance.random() < 0.2:
                return None
            return decimal(scale, chance) if kind == "decimal" else value(kind, chance)

        tuples = [[one(), one()] for _ in range(60)]
        described = {"arguments": [0, 1], "needed": bag.needed, "descending": list(turned)}
        types = [[type_.kind, type_.precision, type_.scale]] * 2
        lines.append("\t".join([json.dumps({**described, "types": types}), *(text_of(t).decode() for t in tuples)]))
        asked.append((bag, tuples))
    reported = iter(ran(classes, "values", given="\n".join(lines)).split("\n"))
    for bag, tuples in asked:
        order, found = order_of(bag), [next(reported).split("\t") for _ in tuples]
        for values, (_, last) in zip(tuples, found, strict=True):
            assert orjson.loads(last) == values[1]
            if isinstance(values[1], float):
                assert last.encode() == double_text(values[1])
        keyed = [(bytes.fromhex(key), order(values)) for values, (key, _) in zip(tuples, found, strict=True)]
        for (key, one_), (other_key, other) in zip(keyed, keyed[1:] + keyed[:1], strict=True):
            assert (key < other_key, key == other_key) == (one_ < other, one_ == other), bag
