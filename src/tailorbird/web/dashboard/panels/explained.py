"""Reduce the output of `tailorbird explain` to the columns that a row's page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailorbird.web.dashboard.panels.columns import PanelColumn
from tailorbird.web.dashboard.panels.reading import Reported

# no keys and values of captured rows: they may contain columns that no SELECT shows
_EVENT = ("alias", "table", "topic", "partition", "offset", "state", "why", "op", "gtid", "file", "pos", "committed_ms",
          "schema_version")  # fmt: skip


def explained_of(found: Mapping[str, Any], shown: Sequence[PanelColumn]) -> Reported:
    """Return the JSON for the page of a row: `{hbase_timestamp, batch, unknown, cells, events}`.

    `found` is the output of `explain --json`. A cell has `{name, heading, expression, agrees, events}`; its `events`
    are indexes into the list `events`, which has only the events of the `shown` columns."""
    columns = {column.name: column for column in shown}
    cells = [cell for cell in found["cells"] if cell["column"] in columns]
    wanted = {node for cell in cells for node in cell["events"]}
    events = [event for event in found["events"] if event["event"] in wanted]
    place = {event["event"]: i for i, event in enumerate(events)}
    return {
        "hbase_timestamp": found["timestamp_ms"],
        "batch": found["batch"],
        "unknown": found["unknown"],
        "cells": [
            {
                "name": cell["column"],
                "heading": columns[cell["column"]].heading,
                "expression": cell["expression"],
                "agrees": cell["agrees"],
                "events": [place[node] for node in cell["events"] if node in place],
            }
            for cell in cells
        ],
        "events": [{name: event[name] for name in _EVENT} for event in events],
    }
