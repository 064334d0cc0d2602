"""What a dashboard shows, its columns matched with the fields that its index has."""

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
    """A field of the index as Solr's schema tells it; `counted` says whether its values can be counted and filtered,
    `many` whether a row may have several (a list).
    """

    name: str
    type: str
    counted: bool
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumn:
    """A column of the page, how it looks, and the heading that people read.

    Facets of it count `field`, the members of a SET one by one, or the column's own where it is empty. `in_key`: it is
    part of the row key, where no value is the name of a group.
    """

    name: str
    look: Look
    heading: str
    field: str = ""
    in_key: bool = False

    @property
    def counted(self) -> str:
        """The field that a facet counts and filters by."""
        return self.field or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A dashboard ready to be queried: `time` and `words` are fields of Solr, `facets` and `columns` are columns.

    `reports_incomplete`: barriers say how much the join has refused; those of older collections do not.
    """

    title: str
    facets: tuple[PageColumn, ...]
    columns: tuple[PageColumn, ...]
    time: str | None
    time_heading: str
    words: tuple[str, ...]
    reports_incomplete: bool = False


def choose_dashboards(topology: Topology, name: str | None) -> list[Dashboard]:
    """The dashboard of that name, without a name all; UsageError names those that there are."""
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
    """The dashboard over an index with these fields; None while the index has none of any table's columns yet.

    TopologyError when the dashboard names a column that the index does not have, or uses one as its type can not be.
    """
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
    """A column's name as a heading: `created_at` → `Created at`."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def _look(field: IndexField, fields: Mapping[str, IndexField]) -> Look:
    # an exact value that is text in Solr tells what it is by the type of its query field
    query = fields.get(query_field(field.name))
    if query is not None and query.type == "pdate":
        return "time"
    return "number" if field.type in _NUMBERS or (query is not None and query.type in _NUMBERS) else "text"
