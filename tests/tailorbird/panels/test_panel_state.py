"""What is chosen: read from a URL that anybody may have written, and the stretch of time that it means."""

from __future__ import annotations

import csv
import io
import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.topology.panels import TimeRange, range_of
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from tailorbird.web.dashboard.panels.columns import Misfit
from tailorbird.web.dashboard.panels.rows import csv_line
from tailorbird.web.dashboard.panels.saving import view_yaml
from tailorbird.web.dashboard.panels.state import Selection, before, chosen_of, stretch, tick_ms
from tailorbird.web.dashboard.time import DAY, MINUTE, Span

NOW = 1_785_500_000_123
TOPOLOGY = """\
name: t
sources:
  s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [sales], server_id: 1}
tables:
  sales: {query: "SELECT * FROM s.sales", row_key: [id]}
indexes:
  sales: {table: sales}
dashboards:
"""
DASHBOARD = """\
  sales:
    title: "Sales: a #1"
    index: sales
    time: at
    range: last 30 days
    facets: [country]
    panels:
      - {number: sum(amount), title: Revenue, format: "0,0.00 €", where: ["paid = true"]}
      - {timeseries: [count, avg(amount)], interval: day}
      - {timeseries: count, by: country, top: 3, width: 6}
      - {terms: product, measure: "percentile(amount, 95)"}
      - {histogram: amount, buckets: 30}
      - {heatmap: country, interval: week}
      - {table: [country], measures: [count], title: Groups}
      - {table: [id, country]}
      - {text: "Words # of it"}
"""


def topology(dashboard: str) -> Topology:
    return read_topology(TOPOLOGY + dashboard, file="t.yml", environ={})


def test_a_url_says_what_is_chosen() -> None:
    """Values of a column are any of them, none among them; what is not ours is left alone."""
    chosen = chosen_of("q=a+b&f.country=DE&f.country=a%26b&n.country=1&range=last+7+days&utm=x")
    assert chosen.words == "a b"
    assert chosen.picks == {"country": frozenset({"DE", "a&b", None})}
    assert chosen.range == TimeRange(count=7, unit="day")
    assert chosen.key == chosen_of("n.country=1&f.country=a%26b&f.country=DE&q=a++b&range=last+7+days").key
    assert chosen.key != chosen_of("q=a+b&f.country=DE&f.country=a%26b&range=last+7+days").key
    assert chosen_of("b.amount=-5.5..10").between == {"amount": ("-5.5", "10")}
    assert chosen_of("b.amount=5..10").key != chosen_of("b.amount=5..11").key


@pytest.mark.parametrize(
    "query",
    ["x" * 17_000, "&".join(f"f.a={i}" for i in range(101)), "f.a=" + "x" * 1_001, "range=1d", "from=2026-01-01",
     "from=2026-01-02&to=2026-01-01", "from=now&to=then", "from=2026-01-01T00:00:00%2B01:00&to=2026-02-01", "q=%ff",
     "b.amount=5", "b.amount=..5", "b.amount=5..", "b.amount=1.." + "2" * 1_001],
)  # fmt: skip
def test_a_url_that_says_none_is_refused(query: str) -> None:
    """With a reason; too much is refused as well."""
    with pytest.raises(Misfit):
        chosen_of(query)


@given(
    st.integers(1, 400), st.sampled_from(["minute", "hour", "day", "week", "month", "year"]), st.integers(0, 2 * DAY)
)
def test_a_range_holds_now_and_moves_by_ticks(count: int, unit: str, later: int) -> None:
    """It ends at most one tick after the present moment; viewers within one tick mean the same stretch."""
    wanted = range_of(f"last {count} {unit}s")
    span = stretch(Selection(range=wanted), TimeRange(), NOW + later)
    assert span is not None
    tick = tick_ms(wanted)
    assert NOW + later <= span.end < NOW + later + tick
    assert span.start < span.end
    assert tick == 1000 or tick * 1000 <= span.end - span.start + 366 * DAY
    assert stretch(Selection(range=wanted), TimeRange(), span.end) == span
    assert before(span).end == span.start


def test_what_was_dragged_wins_over_a_range() -> None:
    """And a range over the dashboard's own."""
    span = Span(start=0, end=MINUTE)
    assert stretch(Selection(span=span, range=range_of("last 7 days")), range_of("last 1 day"), NOW) == span
    assert stretch(Selection(range=TimeRange()), range_of("last 1 day"), NOW) is None


def test_a_saved_view_is_the_dashboard_again() -> None:
    """Every panel reads back as it was declared; what is chosen becomes a filter of each."""
    declared = topology(DASHBOARD).dashboards["sales"]
    text = view_yaml(declared, Selection())
    saved = topology("".join(f"  {line}\n" for line in text.splitlines())).dashboards["sales"]
    assert saved == declared
    chosen = chosen_of("f.country=it%27s&f.kind=a,b&f.kind=&range=last+1+day&q=words")
    text = view_yaml(declared, chosen)
    assert text.startswith("# not in it: the words 'words'\n")
    saved = topology("".join(f"  {line}\n" for line in text.splitlines())).dashboards["sales"]
    assert saved.range == range_of("last 1 day")
    assert [str(one.values) for one in saved.panels[0].where] == ["('true',)", '("it\'s",)', "('', 'a,b')"]
    text = view_yaml(declared, chosen_of("b.amount=100..150"))
    saved = topology("".join(f"  {line}\n" for line in text.splitlines())).dashboards["sales"]
    assert [(one.operator, one.values) for one in saved.panels[1].where] == [(">=", ("100",)), ("<", ("150",))]
    with pytest.raises(Misfit, match="a value or none"):
        view_yaml(declared, chosen_of("f.country=DE&n.country=1"))
    assert yaml.safe_load(view_yaml(declared, chosen_of("n.country=1")))["sales"]["panels"][1]["where"] == [
        "country is null"
    ]


@given(
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(alphabet="=+-@\t\r\n,\"'aé1.;＝＠ \0")), min_size=1
    )
)
@example([" \0 ="])
def test_csv_is_read_back_and_holds_no_formula(values: list[bool | int | str | None]) -> None:
    """Every value is one cell; no cell begins as a formula does, unless it is a number."""
    (cells,) = csv.reader(io.StringIO(csv_line(values), newline=""))
    assert len(cells) == len(values)
    for cell, value in zip(cells, values, strict=True):
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        assert cell.replace("'", "") == text.replace("'", "")
        rest = iter(cell)
        assert all(char in rest for char in text), "apostrophes are only added"
        if re.match(r"[\s\0]*[=+\-@＝＠]|[\t\r\n\0]", cell):
            float(cell)
        # a spreadsheet of another language splits cells, also quoted ones
        assert not any(re.match(r" *[=+\-@＝＠]", part) for part in re.split(r"[;\t\r\n]", cell)[1:]), cell


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"), ("\n=1", "'\n'=1"), ("＝1", "'＝1"), ("a;=1", "a;'=1"), (" =1", "' =1"), ("@a", "'@a"),
        ("\ufeff=1", "'\ufeff=1"), ("-1.5", "-1.5"), ("-a", "'-a"), ("+1", "'+1"), ("a=b", "a=b"), ("a - b", "a - b"),
        ("a@b.example", "a@b.example"), ("d'a", "d'a"), ("2020-01-01", "2020-01-01"),
    ],
)  # fmt: skip
def test_formulas_are_disarmed_and_other_text_is_unchanged(text: str, cell: str) -> None:
    assert next(csv.reader(io.StringIO(csv_line([text]), newline=""))) == [cell]
