"""Where a row's cells come from, in its page: of the index's columns alone, a few at a time, and never for long."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from cdc.model.errors import Retriable, UsageError
from tailorbird.web.dashboard.pages.http_explain import ExplainRequests
from tailorbird.web.dashboard.panels.columns import PanelColumn
from tailorbird.web.dashboard.panels.explained import explained_of
from tests.support.waiting import wait_for


def event(number: int, table: str) -> dict[str, Any]:
    """Return an event as `explain --json` prints it."""
    return {
        "event": number, "alias": "o", "table": table, "topic": f"t.{table}", "partition": 0, "offset": 7 + number,
        "state": "found", "why": "", "op": "u", "key": {"id": 1, "secret_key": 2}, "gtid": f"uuid:{number}",
        "file": "b.1", "pos": 4, "committed_ms": 1, "schema_version": 1,
    }  # fmt: skip


def cell(column: str, *events: int) -> dict[str, Any]:
    return {
        "column": column,
        "value": 1,
        "expression": f"o.{column}",
        "events": [*events],
        "event_values": {"o.secret": "value of a captured row"},
        "agrees": True,
    }


FOUND = {
    "table": "wide", "row_key": "0001", "timestamp_ms": 5, "fence": 12, "layout": 1, "batch": 3, "groups": {},
    "unknown": "",
    "cells": [cell("amount", 2), cell("hidden", 4), cell("both", 2, 9), cell("none")],
    "events": [event(2, "shop.orders"), event(4, "shop.secrets"), event(9, "crm.customers")],
}  # fmt: skip
SHOWN = [PanelColumn(name=name, look="text", type="exact", counted=name) for name in ("amount", "both", "none")]


def test_only_what_the_index_shows_is_explained() -> None:
    """Cells of other columns, their events, and keys and values of captured rows are omitted.

    Each cell refers to its events by position.
    """
    reported = explained_of(FOUND, SHOWN)
    assert [(one["name"], one["events"]) for one in reported["cells"]] == [
        ("amount", [0]),
        ("both", [0, 1]),
        ("none", []),
    ]
    assert [(one["table"], one["gtid"], one["offset"]) for one in reported["events"]] == [
        ("shop.orders", "uuid:2", 9),
        ("crm.customers", "uuid:9", 16),
    ]
    assert "secret" not in repr(reported)


def test_a_few_are_explained_at_a_time() -> None:
    """Further requests are asked to retry; a slot is free once its row is explained."""
    go, began = threading.Event(), threading.Semaphore(0)

    def explain(table: str, row_key: bytes) -> Mapping[str, Any]:
        began.release()
        assert go.wait(20)
        return {"table": table, "row_key": row_key.hex()}

    explainer, reported = ExplainRequests(explain, at_once=2), list[Any]()
    threads = [threading.Thread(target=lambda: reported.append(explainer.ask("wide", b"\x01"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert all(began.acquire(timeout=20) for _ in threads)
    with pytest.raises(Retriable, match="too many rows"):
        explainer.ask("wide", b"\x01")
    go.set()
    for thread in threads:
        thread.join(20)
    assert reported == [{"table": "wide", "row_key": "01"}] * 2
    assert explainer.ask("wide", b"\x02") == {"table": "wide", "row_key": "02"}


def test_what_takes_too_long_is_given_up_and_holds_its_place() -> None:
    """So that a server that hangs costs a few threads, however many ask."""
    go = threading.Event()
    explainer = ExplainRequests(lambda *_: None if go.wait(20) else {}, at_once=1, seconds=0.05)
    with pytest.raises(Retriable, match=r"within 0.05 s"):
        explainer.ask("wide", b"\x01")
    with pytest.raises(Retriable, match="too many rows"):
        explainer.ask("wide", b"\x01")
    go.set()

    def answered() -> bool:
        try:
            return explainer.ask("wide", b"\x01") is None
        except Retriable:
            return False

    wait_for(answered, "the place stays taken", 20)


def test_what_cannot_be_explained_says_why_and_frees_its_place() -> None:
    """As a table without a layout, again and again."""

    def explain(table: str, row_key: bytes) -> Mapping[str, Any]:
        raise UsageError(f"table {table} has no layout yet")

    explainer = ExplainRequests(explain, at_once=1)

    def asked() -> bool:
        try:
            explainer.ask("wide", b"\x01")
        except UsageError as error:
            return "no layout" in str(error)
        except Retriable:
            return False
        return False

    for _ in range(3):
        wait_for(asked, "the place stays taken", 20)
