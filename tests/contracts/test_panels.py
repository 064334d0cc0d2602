"""Panels show what DuckDB computes from the same rows: real Solr, every type of panel, measure and filter."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import duckdb
import pytest

from cdc.model.errors import TopologyError
from cdc.stored.fields import BARRIER, KIND
from cdc.topology.panels import PanelFilter, PanelMeasure, range_of
from cdc.topology.reader import read_topology
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.solr_admin import SolrAdmin
from tailorbird.web.dashboard.board import Board
from tailorbird.web.dashboard.pages.http_hub import FACETS, Hub, Viewer, ask_panel
from tailorbird.web.dashboard.panels.columns import Misfit
from tailorbird.web.dashboard.panels.facets import facets_params, read_facets
from tailorbird.web.dashboard.panels.fitting import FitBoard, FitPanel
from tailorbird.web.dashboard.panels.reading import Reported
from tailorbird.web.dashboard.panels.state import Selection, before, chosen_of, stretch
from tailorbird.web.dashboard.panels.watching import barrier_params, read_barriers
from tailorbird.web.dashboard.time import Span
from tests.support.sales import COLUMNS, SalesIndex, in_duckdb, sales
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

NOW = 1_790_000_000_000 // 86_400_000 * 86_400_000
TOPOLOGY = """\
name: t
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [sales], server_id: 1}}
solr: {{url: "{url}"}}
tables:
  sales: {{query: "SELECT * FROM s.sales", row_key: [id]}}
indexes:
  sales: {{table: sales, collection: {collection}, search: [product, note]}}
dashboards:
  sales:
    index: sales
    time: sold_at
    facets: [country, paid, tags, quantity]
    panels:
{panels}
"""
MEASURES = ["count", "sum(amount)", "avg(amount)", "min(amount)", "max(quantity)", "unique(product)", "sum(quantity)",
            "avg(weight)", "sum(views)", "min(sold_at)"]  # fmt: skip
WHERE = ["paid = true", "amount >= 100.5", "country in (DE, 'it''s', '')", "note is null", "quantity != 5",
         "country not in (AT, CH)", "note = '{!func}1 \"'", "sold_at < 2026-09-15", "amount = 12.30"]  # fmt: skip


@dataclass
class Shop:
    """The rows in Solr and in DuckDB."""

    board: Callable[..., FitBoard]
    hub_board: Callable[..., Board]
    ask: Callable[..., Any]
    rows: duckdb.DuckDBPyConnection
    index: SalesIndex


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    url = f"http://127.0.0.1:{os.environ['TAILORBIRD_PORT_SOLR']}/solr"
    name = f"panels_{time.time_ns():x}"
    admin = SolrAdmin(url, install=install_configset)
    admin.create(name)
    index = SalesIndex(url, name)
    rows = sales(700, seed=3, until_ms=NOW)

    def hub_board(*panels: str) -> Board:
        lines = "\n".join(f"      - {panel}" for panel in panels)
        topology = read_topology(TOPOLOGY.format(url=url, collection=name, panels=lines), file="t.yml", environ={})
        return Board(topology, topology.dashboards["sales"], columns=[*COLUMNS])

    def board(*panels: str) -> FitBoard:
        found = hub_board(*panels).fit()
        assert found is not None
        return found

    try:
        index.put(rows)
        solr = hub_board("{number: count}").solr
        wait_for(lambda: read_barriers(solr.select(barrier_params())) is not None, "no barrier", 20)
        yield Shop(board, hub_board, solr.select, in_duckdb(rows), index)
    finally:
        index.close()
        admin.remove(name)


def measure_sql(measure: PanelMeasure) -> str:
    """Return a measure in DuckDB's SQL; times in milliseconds, as pages have them."""
    field = measure.field
    if measure.function == "count":
        return "count(*)"
    if measure.function == "unique":
        return f"count(DISTINCT {field})"
    if measure.function == "percentile":
        return f"quantile_cont({field}::DOUBLE, {measure.percent / 100})"
    if field == "sold_at":
        return f"epoch_ms({measure.function}({field}))"
    return f"{measure.function}({field})::DOUBLE"


def filter_sql(one: PanelFilter) -> str:
    values = ["'" + value.replace("'", "''") + "'" for value in one.values]
    if one.operator in ("in", "not in"):
        return f"{one.field} {one.operator} ({', '.join(values)})"
    return f"{one.field} {one.operator} {values[0] if values else ''}"


def where_sql(panel: FitPanel, chosen: Selection, span: Span | None) -> str:
    parts = [filter_sql(one) for _, one in panel.where]
    for name, values in chosen.picks.items():
        known = sorted(value for value in values if value is not None)
        some = [filter_sql(PanelFilter(field=name, operator="in", values=tuple(known)))] if known else []
        parts.append("(" + " OR ".join([*some, *([f"{name} IS NULL"] if None in values else [])]) + ")")
    parts += [f"{name} >= {low} AND {name} < {high}" for name, (low, high) in chosen.between.items()]
    if span:
        parts.append(f"epoch_ms(sold_at) >= {span.start} AND epoch_ms(sold_at) < {span.end}")
    return " AND ".join(["true", *parts])


def near(found: Any, expected: Any) -> bool:
    if found is None or expected is None:
        return found is None and expected is None
    return math.isclose(float(found), float(expected), rel_tol=1e-9, abs_tol=1e-6)


def text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def reported(shop: Shop, panel: str, chosen: Selection, span: Span | None) -> tuple[FitPanel, Reported]:
    board = shop.board(panel)
    return board.panels[0], ask_panel(board, board.panels[0], chosen, span, shop.ask)


def states() -> list[tuple[Selection, Span | None]]:
    """Return selections: none, values and NULL, a range of values, a time range."""
    month = stretch(Selection(range=range_of("last 30 days")), range_of("all"), NOW)
    return [
        (Selection(), None),
        (Selection(), month),
        (chosen_of("f.country=DE&f.country=it%27s&n.country=1"), month),
        (chosen_of("f.paid=true&f.quantity=5&f.quantity=7"), None),
        (chosen_of("b.amount=50.5..400&b.quantity=2..8"), month),
    ]


def test_numbers_and_the_period_before(shop: Shop) -> None:
    """Every measure under every selection, and of the period before."""
    for i, measure in enumerate([*MEASURES, "count"]):
        where = f'where: ["{WHERE[i % len(WHERE)]}"]' if '"' not in WHERE[i % len(WHERE)] else "where: note is null"
        for chosen, span in states():
            panel, found = reported(shop, f"{{number: {measure}, {where if i % 2 else 'width: 3'}}}", chosen, span)
            sql = f"SELECT {measure_sql(panel.panel.measures[0])} FROM sales WHERE "
            assert near(found["value"], one(shop, sql + where_sql(panel, chosen, span))), (measure, chosen, span, found)
            if span is None:
                assert found["before"] is None
            else:
                expected = one(shop, sql + where_sql(panel, chosen, before(span)))
                assert near(found["before"], expected), (measure, chosen, found)


def one(shop: Shop, sql: str) -> Any:
    row = shop.rows.execute(sql).fetchone()
    assert row is not None
    return row[0]


def test_percentiles_are_near(shop: Shop) -> None:
    """Solr's digest is an estimate: it lies between neighbouring percentiles."""
    _, found = reported(shop, "{number: 'percentile(amount, 95)'}", Selection(), None)
    low, high = (one(shop, f"SELECT quantile_cont(amount::DOUBLE, {p}) FROM sales") for p in (0.94, 0.96))
    assert low <= found["value"] <= high


@pytest.mark.parametrize("field", ["country", "product", "paid", "quantity"])
def test_terms_with_the_rest_and_none(shop: Shop, field: str) -> None:
    """Bars are the greatest groups, `other` contains all remaining ones, and NULL is a bar of its own."""
    for measure in ("count", "sum(amount)", "avg(amount)", "max(quantity)", "unique(product)"):
        for chosen, span in states():
            panel, found = reported(shop, f"{{terms: {field}, measure: {measure}, top: 3}}", chosen, span)
            sql, where = measure_sql(panel.panel.measures[0]), where_sql(panel, chosen, span)
            groups = dict(shop.rows.execute(f"SELECT {field}, {sql} FROM sales WHERE {where} GROUP BY 1").fetchall())
            expected = {text(value): y for value, y in groups.items()}
            bars = {bar["value"]: bar["y"] for bar in found["bars"] if bar["kind"] != "other"}
            assert all(near(y, expected[value]) for value, y in bars.items()), (measure, found, expected)
            named = [expected[value] for value in bars if value is not None]
            left = sorted((y for value, y in expected.items() if value is not None and value not in bars), key=rank)
            assert not left or not named or rank(left[-1]) <= min(map(rank, named)) + 1e-6
            assert len(named) == min(3, sum(value is not None for value in expected))
            assert (None in bars) == (None in expected)
            rest = [bar["y"] for bar in found["bars"] if bar["kind"] == "other"]
            if not left or measure in ("max(quantity)", "unique(product)"):
                assert rest == []
                assert found["more"] == len(left)
            else:
                kept = ", ".join("'" + value.replace("'", "''") + "'" for value in bars if value is not None)
                without = f"SELECT {sql} FROM sales WHERE {where} AND {field} IS NOT NULL AND {field} NOT IN ({kept})"
                assert near(rest[0], one(shop, without)), (measure, found)


def rank(value: Any) -> float:
    return -math.inf if value is None else float(value)


def test_members_are_counted_one_by_one(shop: Shop) -> None:
    """A row with two tags is in two bars, and there is no `other` bar."""
    _, found = reported(shop, "{terms: tags, top: 1}", Selection(), None)
    new = one(shop, "SELECT count(*) FROM sales WHERE tags LIKE '%new%'")
    assert (found["bars"][0]["value"], found["bars"][0]["y"], found["more"]) == ("new", new, 1)
    assert all(bar["kind"] != "other" for bar in found["bars"])


@pytest.mark.parametrize("kind", ["timeseries: sum(amount), by: country, top: 3", "heatmap: country, measure: count"])
def test_series_split_by_a_column(shop: Shop, kind: str) -> None:
    """Each point of each part, of the remaining values, and of rows without a value."""
    for chosen, span in states():
        panel, found = reported(shop, f"{{{kind}, interval: day}}", chosen, span)
        sql, where = measure_sql(panel.panel.measures[0]), where_sql(panel, chosen, span)
        day = 86_400_000
        inside = f"{where} AND epoch_ms(sold_at) BETWEEN {found['edges'][0]} AND {found['end'] - 1}"
        rows = shop.rows.execute(
            f"SELECT country, epoch_ms(sold_at) // {day} * {day}, {sql} FROM sales WHERE {inside} GROUP BY ALL"
        ).fetchall()
        expected = {(value, at): y for value, at, y in rows}
        assert found["gap"] == "day"
        for part in found["series"]:
            if part["kind"] == "other":
                continue
            for at, y in zip(found["edges"], part["points"], strict=True):
                whole = expected.get((part["value"], at))
                assert near(y or 0, whole or 0), (part["label"], at, y, whole)
        shown = {part["value"] for part in found["series"] if part["kind"] != "other"}
        rest = math.fsum(
            y or 0 for (value, _), y in ((k, float(v or 0)) for k, v in expected.items()) if value not in shown
        )
        other = [part for part in found["series"] if part["kind"] == "other"]
        assert near(math.fsum(y or 0 for part in other for y in part["points"]), rest)
        outside = one(shop, f"SELECT count(*) FROM sales WHERE {where}") - one(
            shop, f"SELECT count(*) FROM sales WHERE {inside}"
        )
        assert found["outside"] == outside


def test_several_measures_over_time(shop: Shop) -> None:
    """An outlier in the year 9999 does not stretch the axis of the others, and is reported."""
    panel, found = reported(shop, "{timeseries: [count, 'avg(amount)', 'unique(product)']}", Selection(), None)
    assert [one["label"] for one in found["series"]] == ["count", "avg(amount)", "unique(product)"]
    assert found["outside"] == 1
    assert len(found["edges"]) > 20
    assert sum(found["series"][0]["points"]) == 699
    for number, measure in enumerate(panel.panel.measures):
        for at, end, y in zip(
            found["edges"], [*found["edges"][1:], found["end"]], found["series"][number]["points"], strict=True
        ):
            where = f"epoch_ms(sold_at) >= {at} AND epoch_ms(sold_at) < {end}"
            assert near(y, one(shop, f"SELECT {measure_sql(measure)} FROM sales WHERE {where}")), (str(measure), at)


@pytest.mark.parametrize("field", ["amount", "quantity", "weight", "views"])
def test_histograms(shop: Shop, field: str) -> None:
    """Every row with a value is in a bar, or counted as omitted."""
    for chosen, span in states():
        panel, found = reported(shop, f"{{histogram: {field}, buckets: 12}}", chosen, span)
        where = where_sql(panel, chosen, span)
        total = one(shop, f"SELECT count({field}) FROM sales WHERE {where}")
        assert sum(found["bars"]) + found["below"] + found["above"] == total
        for i, y in enumerate(found["bars"]):
            low, high = (found["start"] + (i + n) * found["width"] for n in (0, 1))
            inside = f"{field} >= {low!r}::DOUBLE AND {field} < {high!r}::DOUBLE"
            assert y == one(shop, f"SELECT count(*) FROM sales WHERE {where} AND {inside}"), (field, i)
        assert 1 <= len(found["bars"]) <= 32


def test_tables_of_groups_and_of_rows(shop: Shop) -> None:
    """Groups with their measures, the greatest first; rows, the newest first."""
    _, found = reported(shop, "{table: [country, paid], measures: ['sum(amount)', count], top: 200}", Selection(), None)
    rows = shop.rows.execute("SELECT country, paid, sum(amount)::DOUBLE, count(*) FROM sales GROUP BY ALL").fetchall()
    expected = {(text(country), text(paid)): (amount, count) for country, paid, amount, count in rows}
    shown = {(a["value"], b["value"]): (amount, count) for a, b, amount, count in found["rows"]}
    assert shown.keys() == expected.keys()
    assert all(near(x, y) for key in shown for x, y in zip(shown[key], expected[key], strict=True))
    order = [row[2] for row in found["rows"] if row[2] is not None]
    assert order == sorted(order, reverse=True)
    assert found["more"] == 0
    _, found = reported(shop, "{table: [id, amount, note], top: 5}", Selection(), None)
    newest = shop.rows.execute("SELECT id, amount, note FROM sales ORDER BY sold_at DESC, id LIMIT 5").fetchall()
    assert [row[0] for row in found["rows"]] == [row[0] for row in newest]
    assert found["more"] == 695


def test_facets_count_without_their_own_filter(shop: Shop) -> None:
    """A second value can still be chosen; the total is of all that is selected."""
    board = shop.board("{number: count}")
    chosen = chosen_of("f.country=DE&f.paid=true")
    found = read_facets(board, chosen, shop.ask(facets_params(board, chosen, None)))
    assert found["total"] == one(shop, "SELECT count(*) FROM sales WHERE country = 'DE' AND paid")
    countries = {value["value"]: value["count"] for value in found["facets"][0]["values"]}
    rows = shop.rows.execute("SELECT country, count(*) FROM sales WHERE paid GROUP BY 1").fetchall()
    assert countries == dict(rows)


def test_random_filters_equal_sql(shop: Shop) -> None:
    """Filters of every operator over every type, some combined."""
    random = Random(5)
    for _ in range(40):
        some = random.sample([one for one in WHERE if '"' not in one], 2)
        chosen, span = random.choice(states())
        panel, found = reported(shop, f"{{number: count, where: {some!r}}}".replace("\\'", "''"), chosen, span)
        expected = one(shop, f"SELECT count(*) FROM sales WHERE {where_sql(panel, chosen, span)}")
        assert found["value"] == expected, (some, chosen)


HOSTILE = ["{!func}1", '_query_:"{!lucene}*:*"', "*:*", "x) OR (*:*", "[* TO *]", "\\", '"', "$c0t", "' OR 1=1 --"]


def test_no_value_is_syntax(shop: Shop) -> None:
    """Values from links, filters and searches are compared literally: none of them reaches a parser."""
    board = shop.board("{number: count}")
    for value in HOSTILE:
        chosen = Selection(picks={"note": frozenset({value}), "country": frozenset({value, None})})
        found = ask_panel(board, board.panels[0], chosen, None, shop.ask)
        quoted = "'" + value.replace("'", "''") + "'"
        where = f"note = {quoted} AND (country = {quoted} OR country IS NULL)"
        assert found["value"] == one(shop, f"SELECT count(*) FROM sales WHERE {where}"), value
        for number in ("quantity", "amount", "sold_at", "paid"):
            with pytest.raises(Misfit):
                ask_panel(board, board.panels[0], Selection(picks={number: frozenset({value})}), None, shop.ask)
        words = ask_panel(board, board.panels[0], Selection(words=value), None, shop.ask)
        assert words["value"] < 700 or not any(dead_letter.isalnum() or dead_letter == "_" for dead_letter in value), (
            value
        )
    with pytest.raises(Misfit, match="unknown column"):
        ask_panel(board, board.panels[0], Selection(picks={"_kind": frozenset({BARRIER})}), None, shop.ask)
    assert KIND not in COLUMNS


REFUSED = {
    "{number: sum(serial)}": "holds no numbers",
    "{number: sum(papers)}": "holds no numbers",
    "{number: unique(papers)}": "only stored",
    "{number: min(country)}": "neither number nor time",
    "{terms: papers}": "only stored",
    "{histogram: country}": "holds no numbers",
    "{histogram: serial}": "holds no numbers",
    "{number: count, where: [papers is null]}": "only stored",
    "{number: count, where: [country > a]}": "neither number nor time",
    "{number: count, where: [quantity = many]}": "value 'many'",
    "{number: count, where: [quantity = 99999999999]}": "32 bits",
    "{number: count, where: [sold_at > yesterday]}": "value 'yesterday'",
    "{number: sum(nope)}": "unknown column nope",
}


def test_wrong_types_are_refused_with_their_line(shop: Shop) -> None:
    """Before anything is served, the error gives file, line, path, the fault and a valid value."""
    for panel, what in REFUSED.items():
        with pytest.raises(TopologyError, match=what) as caught:
            shop.board("{number: count}", panel)
        assert str(caught.value).startswith("t.yml:16: dashboards.sales.panels[1]: "), caught.value


def test_large_integer_sums_are_marked_inexact(shop: Shop) -> None:
    """Above 2^53 a double cannot represent every integer; smaller sums, and those of decimals, are not marked."""
    many = {"{number: sum(views)}": True, "{number: sum(quantity)}": False}
    found: Mapping[str, bool] = {panel: reported(shop, panel, Selection(), None)[1]["inexact"] for panel in many}
    assert found == many


def test_fifty_viewers_cost_as_much_as_one(shop: Shop) -> None:
    """One query per panel and selection, at first and whenever the barrier moves; no query while nothing changes; the
    cache is bounded."""
    board = shop.hub_board("{number: sum(amount)}", "{terms: country}", "{timeseries: count, by: product}", "{text: x}")
    # a thread of its own, since a browser's driver may run a loop in this one
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _look(board, shop)).result()


async def _look(board: Board, shop: Shop) -> None:
    alone = Hub(board)
    await alone.show(_viewer(alone, []))
    one, hub = alone.queries, Hub(board, shelf=40)
    reported: list[Reported] = []
    viewers = [_viewer(hub, reported) for _ in range(50)]
    await asyncio.gather(*(hub.show(viewer) for viewer in viewers))
    assert hub.queries == one
    assert len(reported) == 50 * 5
    await hub.round()
    assert hub.queries == one + 1  # whether the barrier has moved
    assert sum("panel" in message for message in reported) == 50 * 5
    token = hub.status()["token"]
    shop.index.barrier()
    before_round = hub.queries
    while hub.status()["token"] == token:
        before_round = hub.queries
        await hub.round()
    assert hub.queries - before_round <= one + 1
    for number in range(200):
        viewers[0].chosen = Selection(picks={"quantity": frozenset({str(number)})})
        await hub.show(viewers[0])
    assert hub.kept == 40


def _viewer(hub: Hub, reported: list[Reported]) -> Viewer:
    async def report(message: Reported) -> None:
        reported.append(message)

    viewer = Viewer(report=report, panels=(FACETS, 0, 1, 2, 3))
    hub.viewers.add(viewer)
    return viewer
