"""Find the index fields of a dashboard's columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdc.model.errors import UsageError
from cdc.stored.fields import INCOMPLETE, members_field, query_field, words_field
from cdc.topology.topology import Dashboard, Topology

Look = Literal["text", "number", "time", "members"]
_NAME = re.compile(r"[^\W\d]\w*")
_NUMBERS = {"pint", "plong", "pfloat", "pdouble"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexField:
    """A field of the index, from Solr's schema. `counted`: its values can be counted and filtered.

    `many`: a row may have several values (a list)."""

    name: str
    type: str
    counted: bool
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumn:
    """A column of the page, its format, and its heading.

    `field` is the field for facets, if it differs from the column's own: that of a SET holds its members. `in_key`:
    the column is a part of the row key, where a missing value is a value of its own."""

    name: str
    look: Look
    heading: str
    field: str = ""
    in_key: bool = False

    @property
    def counted(self) -> str:
        """Return the field that a facet counts and filters by."""
        return self.field or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The columns of a dashboard, with the fields of its index. `time` and `words` are Solr fields.

    `reports_incomplete`: the barriers have the number of changes that the join refused. Older collections lack it.
    `time_heading` is the heading of the time column."""

    title: str
    facets: tuple[PageColumn, ...]
    columns: tuple[PageColumn, ...]
    time: str | None
    time_heading: str
    words: tuple[str, ...]
    reports_incomplete: bool = False


def choose_dashboards(topology: Topology, name: str | None) -> list[Dashboard]:
    """Return the dashboard with a name, or all without a name. Raises UsageError, which lists the names."""
    known = ", ".join(topology.dashboards)
    if not known:
        raise UsageError(
            f"{topology.file} declares no dashboard", "add one under `dashboards:`, as topologies/shop.yml does"
        )
    if name is None:
        return [*topology.dashboards.values()]
    if name not in topology.dashboards:
        raise UsageError(f"unknown dashboard {name}", f"one of {known}")
    return [topology.dashboards[name]]


def view_of(topology: Topology, dashboard: Dashboard, fields: Mapping[str, IndexField]) -> View | None:
    """Return a dashboard's columns with the fields of its index. None while the index has no columns.

    Raises TopologyError if the dashboard names a column that the index lacks, or whose type does not support its
    use."""
    index = topology.indexes[dashboard.index]
    plain = {name: field for name, field in fields.items() if not name.startswith("_")}
    if not plain:
        return None
    row_key = topology.tables[index.table].row_key if index.table in topology.tables else ()

    def column(path: str, name: str) -> PageColumn:
        if not _NAME.fullmatch(name) or name not in plain:
            raise topology.error(path, f"unknown column {name}", "one of " + ", ".join(plain))
        members = members_field(name) if members_field(name) in fields else ""
        look: Look = "members" if members else _look(plain[name], fields)
        return PageColumn(name=name, look=look, heading=heading(name), field=members, in_key=name in row_key)

    def facet(path: str, name: str) -> PageColumn:
        found = column(path, name)
        if not plain[name].counted:
            raise topology.error(path, f"column {name} is only stored, not counted", "a column of another type")
        return found

    base = f"dashboards.{dashboard.name}"
    time: str | None = None
    if dashboard.time is not None:
        found = column(f"{base}.time", dashboard.time)
        if found.look != "time" or plain[found.name].many:
            raise topology.error(f"{base}.time", f"column {found.name} holds no times", "a date, datetime or timestamp")
        time = query_field(found.name)
    shown = dashboard.columns or tuple(name for name in plain if _NAME.fullmatch(name))
    return View(
        title=dashboard.title,
        facets=tuple(facet(f"{base}.facets[{i}]", name) for i, name in enumerate(dashboard.facets)),
        columns=tuple(column(f"{base}.columns[{i}]", name) for i, name in enumerate(shown)),
        time=time,
        time_heading=heading(dashboard.time or ""),
        words=tuple(words_field(name) for name in index.search if words_field(name) in fields),
        reports_incomplete=INCOMPLETE in fields,
    )


def heading(name: str) -> str:
    """Return a column's name as a heading: `created_at` → `Created at`."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def _look(field: IndexField, fields: Mapping[str, IndexField]) -> Look:
    # the type of the query field shows the type of an exact value that Solr stores as text
    query = fields.get(query_field(field.name))
    if query is not None and query.type == "pdate":
        return "time"
    return "number" if field.type in _NUMBERS or (query is not None and query.type in _NUMBERS) else "text"
