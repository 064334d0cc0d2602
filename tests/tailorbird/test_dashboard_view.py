"""A dashboard meets its index: any topology's columns work, and a mistake is named with its line."""

from __future__ import annotations

import pytest

from cdc.model.errors import TopologyError, UsageError
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from tailorbird.web.dashboard.text import NONE, cell_text, facet_text, hint_text
from tailorbird.web.dashboard.view import IndexField, choose_dashboards, heading, view_of

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


def test_columns_look_like_their_types() -> None:
    """The index's fields distinguish numbers and times from texts, for any topology."""
    topology = fleet("sales: {index: cars, facets: [doors], time: sold_at, columns: [plate, price, doors, sold_at]}")
    view = view_of(topology, topology.dashboards["sales"], FIELDS)
    assert view is not None
    assert [(c.name, c.look) for c in view.columns] == [
        ("plate", "text"),
        ("price", "number"),
        ("doors", "number"),
        ("sold_at", "time"),
    ]
    assert view.time == "_q_sold_at"
    assert view.words == ("_t_owner",)


def test_a_facet_of_a_set_counts_its_members() -> None:
    """The column is shown whole, its facet asks the field that holds its members one by one."""
    topology = fleet("sales: {index: cars, facets: [owner], columns: [owner]}")
    members = IndexField(name="_m_owner", type="string", counted=False)
    view = view_of(topology, topology.dashboards["sales"], {**FIELDS, "_m_owner": members})
    assert view is not None
    ((facet,), (column,)) = view.facets, view.columns
    assert (facet.name, facet.counted, column.look) == ("owner", "_m_owner", "members")
    assert cell_text("new,hot", column.look) == "new, hot"


def test_a_list_is_counted_by_member_and_is_no_time() -> None:
    """A list's own field contains its members, formatted like its element type. A histogram needs one time per row."""
    dates = [
        IndexField(name=name, type=type_, counted=True, many=True)
        for name, type_ in (("seen", "string"), ("_q_seen", "pdate"))
    ]
    fields = {**FIELDS, **{field.name: field for field in dates}}
    topology = fleet("sales: {index: cars, facets: [seen], columns: [seen]}")
    view = view_of(topology, topology.dashboards["sales"], fields)
    assert view is not None
    ((facet,), (column,)) = view.facets, view.columns
    assert (facet.counted, column.look) == ("seen", "time")
    assert cell_text(["2017-09-15T10:12:00.5Z", "2017-09-16Z"], column.look) == "2017-09-15 10:12:00, 2017-09-16"
    assert cell_text(["a", "", "b"], "text") == "a, , b"
    assert hint_text(["2017-09-15T10:12:00.5Z", "2017-09-16Z"]) == "2017-09-15T10:12:00.5Z, 2017-09-16Z"
    topology = fleet("sales: {index: cars, time: seen}")
    with pytest.raises(TopologyError, match="column seen holds no times"):
        view_of(topology, topology.dashboards["sales"], fields)


def test_no_value_is_the_name_of_a_group() -> None:
    """If a column is part of the row key, its rows without a value form a group with the name that the facet shows."""
    topology = fleet("sales: {index: cars, columns: [plate, owner]}")
    view = view_of(topology, topology.dashboards["sales"], FIELDS)
    assert view is not None
    assert [column.in_key for column in view.columns] == [True, False]
    assert (cell_text(None, "text", NONE), facet_text(None, "text")) == ("(none)", "(none)")


def test_without_columns_all_are_shown() -> None:
    """A minimal dashboard shows every column and no internal field."""
    topology = fleet("least: {index: cars}")
    view = view_of(topology, topology.dashboards["least"], FIELDS)
    assert view is not None
    assert [c.name for c in view.columns] == ["plate", "owner", "price", "doors", "sold_at", "papers"]
    assert view.time is None


def test_an_index_without_columns_is_not_ready() -> None:
    """Before the first row there is nothing to complain about yet."""
    topology = fleet("sales: {index: cars, facets: [nonsense]}")
    assert view_of(topology, topology.dashboards["sales"], {"_id": FIELDS["_id"]}) is None


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
    topology = fleet(f"sales: {{index: cars, {settings}}}")
    with pytest.raises(TopologyError) as raised:
        view_of(topology, topology.dashboards["sales"], FIELDS)
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
