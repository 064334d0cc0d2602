"""Values from before a schema change are converted exactly to the column's current type, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.model.geometry import point_of
from cdc.model.types import parse_type
from joins.query.convert import Unfit, fit_of

POINT: dict[str, Any] = point_of(2.35, 48.85, 4326)
EXACT: list[tuple[str, Any, Any]] = [
    ("decimal(8,3)", "2.99", "2.990"), ("decimal(8,3)", 5, "5.000"), ("decimal(8,3)", "-0.500", "-0.500"),
    ("decimal(4,2)", "2.990", "2.99"), ("decimal(4,2)", 1.5, "1.50"), ("decimal(2,2)", "0.25", "0.25"),
    ("decimal(4,0)", "12.000", "12"), ("decimal(4,0)", "007", "7"), ("decimal(4,0)", True, "1"),
    ("int32", "5", 5), ("int32", "-5.00", -5), ("int32", 5.0, 5), ("int32", -(2**31), -(2**31)), ("int8", False, 0),
    ("int64", 2**63 - 1, 2**63 - 1), ("uint64", 2**64 - 1, 2**64 - 1), ("uint64", "0", 0),
    ("float64", "2.990", 2.99), ("float64", 5, 5), ("float32", 1.5, 1.5),
    ("float64", "NaN", "NaN"), ("float32", "-Infinity", "-Infinity"), ("string", "NaN", "NaN"),
    ("string", 5, "5"), ("string", -5, "-5"), ("string", 1.50, "1.5"), ("string", 100.0, "100"), ("string", "05", "05"),
    ("string", 2**64 - 1, str(2**64 - 1)), ("json", "{}", "{}"),
    ("date", "2026-01-31T00:00:00Z", "2026-01-31Z"), ("date", "2026-01-31", "2026-01-31Z"),
    ("datetime", "2026-01-31Z", "2026-01-31T00:00:00Z"),
    ("datetime", "2026-01-31T10:00:00.50Z", "2026-01-31T10:00:00.5Z"),
    ("timestamp", "2026-01-31 10:00:00", "2026-01-31T10:00:00Z"), ("time", "-12:30:00", "-12:30:00"),
    ("point", POINT, "SRID=4326;POINT(2.35 48.85)"), ("geometry", POINT, "SRID=4326;POINT(2.35 48.85)"),
    ("point", {"wkb": POINT["wkb"], "more": [{"wkb": 1}]}, "POINT(2.35 48.85)"),
    ("list<float32>", [1.5, -2, 1e20], [1.5, -2, 1e20]), ("list<float32>", [], []),
    ("point", "(1.5,-2e-07)", "POINT(1.5 -0.0000002)"),
    ("bool", 1, True), ("bool", False, False), ("bytes", "AAEC", "AAEC"),
]  # fmt: skip
UNFIT: list[tuple[str, Any]] = [
    ("decimal(4,2)", "2.995"), ("decimal(4,2)", "100.00"), ("decimal(4,2)", 1 / 3), ("decimal(4,2)", "1e1"),
    ("decimal(4,2)", ""), ("decimal(4,2)", "٣.٥٠"), ("int8", 128), ("int32", "5.5"), ("int32", "x"), ("int32", 2**31),
    ("int64", 2.0**64), ("uint64", -1), ("float64", True), ("float64", "nan"), ("string", True), ("string", 1e20),
    ("string", 0.1 + 0.2), ("string", {}), ("date", "2026-01-31T10:00:00Z"), ("date", 20000), ("datetime", "10:00:00"),
    ("datetime", "2026-01-31T10:00:00+02:00"), ("bool", 2), ("bool", "1"), ("bytes", 5), ("time", 5), ("json", []),
    ("point", "POINT(1 2)"), ("point", {}), ("point", {"wkb": "AQ=="}), ("point", {"wkb": "!"}), ("point", [1]),
    ("geometry", {"wkb": POINT["wkb"], "srid": -1}), ("geometry", {"wkb": POINT["wkb"], "srid": "4326"}),
    ("list<float32>", [1.5, None]), ("list<float32>", ["1"]), ("list<float32>", [[1]]), ("list<float32>", "[1]"),
    ("list<float32>", {"a": 1}), ("string", POINT), ("bytes", [1.5]),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value", "expected"), EXACT)
def test_what_is_exact_converts(type_: str, value: Any, expected: Any) -> None:
    """Values convert as MySQL's ALTER converts the row; NULL stays NULL."""
    fit = fit_of(parse_type(type_))
    found = fit(value)
    assert (found, type(found)) == (expected, type(expected))
    assert type_ in ("point", "geometry") or fit(found) == found
    assert fit(None) is None


@pytest.mark.parametrize(("type_", "value"), UNFIT)
def test_what_is_not_exact_is_not_guessed(type_: str, value: Any) -> None:
    """There is no rounding, no wrapping, no guessing."""
    with pytest.raises(Unfit):
        fit_of(parse_type(type_))(value)
