"""A dashboard meets its index: any topology's columns work, and a mistake is named with its line."""

from __future__ import annotations

import pytest

from cdc.model.errors import TopologyError, UsageError
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from tailorbird.web.dashboard.panels.fitting import FitBoard, fit
from tailorbird.web.dashboard.panels.rows import shown_first
from tailorbird.web.dashboard.text import facet_text
from tailorbird.web.dashboard.view import IndexField, choose_dashboards, heading

TOPOLOGY = """\
name: fleet
sources:
  s: {{type: mysql, hostname: h, username: u, password: p, database: d, tables: [cars], server_id: 1}}
tables:
  cars: {{query: SELECT 1, row_key: [plate]}}
indexes:
  cars: {{table: cars, search: [owner, gone]}}
dashboards:
{dashboards}
"""
FIELDS = {
    field.name: field
    for field in (
        IndexField(name="_id", type="string", counted=True),
        IndexField(name="plate", type="exact", counted=True),
        IndexField(name="owner", type="exact", counted=True),
        IndexField(name="_t_owner", type="words", counted=False),
        IndexField(name="price", type="string", counted=True),
        IndexField(name="_q_price", type="pdouble", counted=True),
        IndexField(name="doors", type="pint", counted=True),
        IndexField(name="sold_at", type="string", counted=True),
        IndexField(name="_q_sold_at", type="pdate", counted=True),
        IndexField(name="papers", type="stored", counted=False),
    )
}


def fleet(*dashboards: str) -> Topology:
    lines = "\n".join(f"  {line}" for line in dashboards)
    return read_topology(TOPOLOGY.format(dashboards=lines), file="fleet.yml", environ={})


def fitted(dashboard: str, **more: IndexField) -> FitBoard:
    """Fit a dashboard to the index of cars, whose fields may be replaced."""
    topology = fleet(f"sales: {{index: cars, {dashboard}}}")
    return fit(topology, topology.dashboards["sales"], {**FIELDS, **more})


def test_columns_look_like_their_types() -> None:
    """The index's fields distinguish numbers and times from texts, for any topology."""
    board = fitted("facets: [doors], time: sold_at, columns: [plate, price, doors, sold_at]")
    assert [(c.name, c.look) for c in shown_first(board)] == [
        ("plate", "text"),
        ("price", "number"),
        ("doors", "number"),
        ("sold_at", "time"),
    ]
    assert board.time is not None
    assert board.time.ordered == "_q_sold_at"
    assert board.timeline is not None
    assert board.timeline.panel.title == "Sold at: rows over time"
    assert board.words == ("_t_owner",)


def test_a_facet_of_a_set_counts_its_members() -> None:
    """The column is shown whole, its facet asks the field that holds its members one by one."""
    members = IndexField(name="_m_owner", type="string", counted=False)
    column = fitted("facets: [owner], columns: [owner]", _m_owner=members).column("owner")
    assert (column.name, column.counted, column.look) == ("owner", "_m_owner", "members")


def test_a_list_is_counted_by_member_and_is_no_time() -> None:
    """A list's own field contains its members, formatted like its element type. A histogram needs one time per row."""
    dates = {
        name: IndexField(name=name, type=type_, counted=True, many=True)
        for name, type_ in (("seen", "string"), ("_q_seen", "pdate"))
    }
    column = fitted("facets: [seen], columns: [seen]", **dates).column("seen")
    assert (column.counted, column.look) == ("seen", "time")
    with pytest.raises(TopologyError, match="column seen holds no times"):
        fitted("time: seen", **dates)


def test_no_value_is_the_name_of_a_group() -> None:
    """If a column is part of the row key, its rows without a value form a group; the facet names it, too."""
    assert fitted("columns: [plate, owner]").keys == {"plate"}
    assert (facet_text(None, "text"), facet_text("", "text"), facet_text(True, "text")) == ("(none)", "(empty)", "yes")
    assert facet_text("2017-09-15T10:12:00.5Z", "time") == "2017-09-15 10:12:00"
    assert len(facet_text("x" * 10_000, "text")) == 301


def test_without_columns_all_are_shown() -> None:
    """A minimal dashboard shows every column and no internal field."""
    board = fitted("title: Least")
    assert [c.name for c in shown_first(board)] == ["plate", "owner", "price", "doors", "sold_at", "papers"]
    assert (board.time, board.timeline) == (None, None)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("facets: [doors, color]", "dashboards.sales.facets[1]: unknown column color, expected one of plate, owner"),
        ("columns: [nope]", "dashboards.sales.columns[0]: unknown column nope"),
        ("columns: ['_id']", "dashboards.sales.columns[0]: unknown column _id"),
        ("time: sold", "dashboards.sales.time: unknown column sold"),
        ("time: doors", "dashboards.sales.time: column doors holds no times, expected a date, datetime or timestamp"),
        ("facets: [papers]", "dashboards.sales.facets[0]: column papers is only stored, not counted"),
    ],
)
def test_a_mistake_is_named_with_its_line(settings: str, expected: str) -> None:
    """A dashboard over columns that the index has not ends with file, line, path and what would be right."""
    with pytest.raises(TopologyError) as raised:
        fitted(settings)
    assert str(raised.value).startswith(f"fleet.yml:9: {expected}")


def test_a_dashboard_is_found_by_name() -> None:
    """Without a name all are taken; a wrong name lists the right ones; none at all says what to add."""
    both = fleet("a: {index: cars}", "b: {index: cars}")
    assert [one.name for one in choose_dashboards(both, "b")] == ["b"]
    assert [one.name for one in choose_dashboards(both, None)] == ["a", "b"]
    with pytest.raises(UsageError, match="unknown dashboard c; one of a, b"):
        choose_dashboards(both, "c")
    none = TOPOLOGY.format(dashboards="").replace("dashboards:", "")
    with pytest.raises(UsageError, match="declares no dashboard; add one under `dashboards:`"):
        choose_dashboards(read_topology(none, file="fleet.yml", environ={}), None)


def test_headings_are_words() -> None:
    """People read headings, not identifiers."""
    assert heading("created_at") == "Created at"
    assert heading("größe") == "Größe"
