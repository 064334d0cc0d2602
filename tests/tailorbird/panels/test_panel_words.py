"""The small languages of panels: measures, filters, ranges; what is of none of them is named."""

from __future__ import annotations

import pytest

from cdc.topology.panels import PanelFilter, TimeRange, filter_of, measure_of, range_of


@pytest.mark.parametrize(
    "text", ["count", "sum(amount)", "avg(amount)", "min(at)", "max(at)", "unique(country)", "percentile(amount, 99.5)"]
)
def test_measures_are_read_as_they_are_written(text: str) -> None:
    """A measure says itself back, so that a saved dashboard is the one that was seen."""
    assert str(measure_of(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "median(x)", "sum", "sum()", "sum(*)", "count(x)", "percentile(x)", "percentile(x, 101)", "sum(x, 5)",
     "sum(a,b)", "sum(mul(a,b))", "sum({!func}a)", "sum(a) desc"],
)  # fmt: skip
def test_what_is_no_measure_is_refused(text: str) -> None:
    """Neither Solr's functions nor its local parameters pass for a column."""
    with pytest.raises(ValueError, match=r"measure|percentile"):
        measure_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status = paid", PanelFilter(field="status", operator="=", values=("paid",))),
        ("amount>=10.5", PanelFilter(field="amount", operator=">=", values=("10.5",))),
        ("name = 'Ann, O''Hara (x)'", PanelFilter(field="name", operator="=", values=("Ann, O'Hara (x)",))),
        ("country in (DE, 'A,T')", PanelFilter(field="country", operator="in", values=("DE", "A,T"))),
        ("country not  in (DE)", PanelFilter(field="country", operator="not in", values=("DE",))),
        ("note is null", PanelFilter(field="note", operator="is null")),
        ("note is  not null", PanelFilter(field="note", operator="is not null")),
        ("note = ''", PanelFilter(field="note", operator="=", values=("",))),
    ],
)
def test_filters_are_column_operator_values(text: str, expected: PanelFilter) -> None:
    """What is compared is a value, with its commas and quotes."""
    assert filter_of(text) == expected


@pytest.mark.parametrize(
    "text", ["", "status", "status paid", "*:*", "_query_:x", "{!term f=a}b", "a in DE", "a in ()", "a = 1, 2",
             "a = x OR (b = 2)", "a is null or 1", "inner", "a innn (x)"]
)  # fmt: skip
def test_what_is_no_filter_is_refused(text: str) -> None:
    """No syntax of Solr's is a filter."""
    with pytest.raises(ValueError, match="filter"):
        filter_of(text)


def test_ranges() -> None:
    """As people say them."""
    assert range_of("all") == TimeRange()
    assert range_of("last 1 day") == TimeRange(count=1, unit="day")
    assert str(range_of("last 30 days")) == "last 30 days"
    for text in ("", "last days", "last 0 days", "last -3 days", "yesterday", "last 9999999 days"):
        with pytest.raises(ValueError, match="range"):
            range_of(text)
