"""Fields of an index, as Solr's schema has them, and the choice of dashboards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc.model.errors import UsageError
from cdc.topology.topology import Dashboard, Topology

Look = Literal["text", "number", "time", "members"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexField:
    """A field of the index, from Solr's schema. `counted`: its values can be counted and filtered.

    `many`: a row may have several values (a list)."""

    name: str
    type: str
    counted: bool
    many: bool = False


def choose_dashboards(topology: Topology, name: str | None) -> list[Dashboard]:
    """Return the dashboard with a name, or all without a name. Raises UsageError, which lists the names, if there is
    none."""
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


def choose_pages(topology: Topology, name: str | None) -> list[Dashboard]:
    """Return the dashboard with a name, or all that have a page. Raises UsageError if there is none, or if the named
    one has no page, since its index is in OpenSearch."""
    found = [one for one in choose_dashboards(topology, name) if one.name in topology.pages]
    if not found:
        what = f"dashboard {name} has no page" if name else f"no dashboard of {topology.file} has a page"
        remedy = "use an index with `type: solr`, or search it with `tailorbird api` or `tailorbird mcp`"
        raise UsageError(f"{what}: pages do not read OpenSearch", remedy)
    return found


def heading(name: str) -> str:
    """Return a column's name as a heading: `created_at` → `Created at`."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]
