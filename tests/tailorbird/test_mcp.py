"""The MCP server answers only what its dashboards show, with a proof, and survives every message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.stored.fields import UNIQUE_KEY, words_field
from cdc.topology.reader import read_topology
from indexer.index.barriers import IndexProgress
from tailorbird.web.dashboard.panels.fitting import FitBoard, fit
from tailorbird.web.dashboard.query import Params
from tailorbird.web.dashboard.view import IndexField
from tailorbird.web.mcp.protocol import VERSIONS, McpServer
from tailorbird.web.mcp.searches import (
    Documents,
    RowsChanged,
    RowsFound,
    RowsSearch,
    changes_params,
    search_params,
)
from tailorbird.web.mcp.tools import MOST_HANDLES, Handles, tools_of

TEXT = """name: t
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}
tables: {wide: {query: SELECT a.id FROM s.a, row_key: [id]}}
indexes: {rows: {table: wide, search: [name, secret]}}
dashboards: {sales: {index: rows, columns: [name, amount], time: at}}
"""
FIELDS = {
    name: IndexField(name=name, type=type_, counted=True, many=False)
    for name, type_ in {
        "id": "plong", "name": "string", "secret": "string", "amount": "pdouble", "at": "pdate",
        words_field("name"): "text_general", words_field("secret"): "text_general",
    }.items()
}  # fmt: skip


NAMES = count()


class FakeAnswers:
    """Answers with one row, and notes the parameters of each query."""

    def __init__(self) -> None:
        self.asked: list[Params] = []
        topology = read_topology(TEXT, file="t.yml", environ={})
        self.fitted = fit(topology, topology.dashboards["sales"], FIELDS)

    def board(self) -> FitBoard:
        return self.fitted

    def found(self, search: RowsSearch) -> RowsFound:
        self.asked.append(search_params(search))
        document = {UNIQUE_KEY: "00017365637265742d6b6579", "name": "Ann", "amount": 1.5}
        return RowsFound(documents=[document], total=1)

    def changed(self, asked: RowsChanged) -> Iterator[Documents]:
        self.asked.append(changes_params(asked, "*"))
        yield []

    def progress(self) -> IndexProgress:
        # a later version than the timestamp says
        return IndexProgress(positions={"s": {"gtid_set": "u:1-9"}}, timestamp=4, version=10)

    def verification(self) -> Mapping[str, Any]:
        return {"verdict": "equal", "results": []}

    def explain(self, key: bytes) -> Mapping[str, Any] | None:
        assert key.hex() == "00017365637265742d6b6579"
        cells = [
            {"column": name, "expression": name, "agrees": True, "events": [event], "value": "hidden value"}
            for name, event in (("name", 0), ("secret", 1))
        ]
        event: dict[str, Any] = {
            "alias": "a", "table": "s.d.a", "topic": "t", "partition": 0, "offset": 7, "state": "found", "why": "",
            "op": "u", "gtid": "u:9", "file": "f", "pos": 1, "committed_ms": 4, "schema_version": 1,
            "key": {"id": 1}, "values": {"secret": "hidden value"},
        }  # fmt: skip
        events = [{**event, "event": 0}, {**event, "event": 1}]
        return {"timestamp_ms": 5, "batch": 1, "unknown": "", "cells": cells, "events": events}


def asked(server: McpServer, method: str, **params: Any) -> dict[str, Any]:
    line = server.answer(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    assert line is not None
    reply: dict[str, Any] = json.loads(line)
    return reply


def served() -> tuple[McpServer, FakeAnswers]:
    answers = FakeAnswers()
    return McpServer(
        tools_of({"sales": answers}, Handles(lambda: str(next(NAMES)))), version="1", instructions="x"
    ), answers


def called(server: McpServer, tool: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = asked(server, "tools/call", name=tool, arguments=arguments)["result"]
    return result


def test_a_session_begins_and_lists_read_only_tools() -> None:
    """The versions of the protocol that a client may ask for are known; every tool is declared as read-only."""
    server, _ = served()
    for version, answered in (*zip(VERSIONS, VERSIONS, strict=True), ("1999-01-01", VERSIONS[0])):
        assert asked(server, "initialize", protocolVersion=version)["result"]["protocolVersion"] == answered
    tools = asked(server, "tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["tables", "search", "explain", "cut", "verification"]
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
    assert tools[1]["inputSchema"]["required"] == ["dashboard"]
    assert tools[2]["inputSchema"]["required"] == ["dashboard", "key"]
    assert asked(server, "ping")["result"] == {}


def test_rows_come_with_their_proof_and_without_hidden_columns() -> None:
    """An answer says up to where it is complete and what `verify` found. Columns that the dashboard does not show are
    neither returned nor searched, and a key that contains one is replaced by a name.
    """
    server, answers = served()
    found = called(server, "search", dashboard="sales", words="ann", filters=["amount >= 1"], sort="-amount")
    reported = found["structuredContent"]
    assert (reported["complete_up_to"]["sources"]["s"], reported["verification"]["verdict"]) == (
        {"gtid_set": "u:1-9"}, "equal",
    )  # fmt: skip
    (row,) = reported["rows"]
    assert row["values"] == {"name": "Ann", "amount": 1.5}
    assert row["key"].startswith("row-"), "the key column `id` is not shown"
    (params,) = answers.asked
    assert params["qf"] == words_field("name"), "`secret` is searched in the dashboard's index, but is not shown"
    assert params["fl"] == f"{UNIQUE_KEY},name,amount"
    explained = called(server, "explain", dashboard="sales", key=row["key"])
    assert [cell["name"] for cell in explained["structuredContent"]["cells"]] == ["name"]
    assert len(explained["structuredContent"]["events"]) == 1
    assert "hidden value" not in json.dumps(explained)
    called(server, "search", dashboard="sales")
    assert "at" not in str(answers.asked[-1]["sort"]).split(), "rows are not ordered by a column that is not shown"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"columns": ["secret"]}, "unknown column secret; one of name, amount"),
        ({"sort": "secret"}, "unknown column secret"),
        ({"filters": ["secret = x"]}, "unknown column secret"),
        ({"filters": ["id >= 1"]}, "unknown column id"),
        ({"filters": ["name"]}, "filter 'name'"),
        ({"filters": ["amount = x"]}, "'x' for column amount"),
        ({"limit": 51}, "limit must be a number from 1 to 50"),
        ({"limit": True}, "limit must be"),
        ({"words": 1}, "words must be a text"),
        ({"columns": "name"}, "columns must be a list"),
        ({"dashboard": "other"}, "unknown dashboard other; one of sales"),
        ({"fl": "*"}, "unknown argument fl"),
    ],
)
def test_what_a_dashboard_does_not_show_is_refused(arguments: dict[str, Any], why: str) -> None:
    """A refusal names the argument and what is accepted; Solr is not asked."""
    server, answers = served()
    result = called(server, "search", **{"dashboard": "sales", **arguments})
    assert (result["isError"], why in result["content"][0]["text"], answers.asked) == (True, True, [])


def test_words_are_refused_if_no_shown_column_is_searched() -> None:
    """Otherwise the words would be ignored, and all rows returned."""
    server, answers = served()
    answers.fitted = replace(answers.fitted, words=(words_field("secret"),))
    result = called(server, "search", dashboard="sales", words="ann")
    assert "use filters" in result["content"][0]["text"]


def test_names_of_rows_are_forgotten_in_order() -> None:
    """The memory of a long session is bounded; a forgotten name is an error, not another row."""
    handles = Handles(lambda: str(next(NAMES)))
    first = handles.given("00")
    names = [handles.given(f"{at:08x}") for at in range(MOST_HANDLES)]
    assert handles.key(names[-1]) == f"{MOST_HANDLES - 1:08x}"
    assert handles.given("00") != first
    with pytest.raises(ValueError, match="search again"):
        handles.key(first)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.text(max_size=30)
    | st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.just("2.0") | JSONS,
            "id": JSONS,
            "method": st.sampled_from(["initialize", "tools/call", "tools/list"]) | JSONS,
            "params": st.fixed_dictionaries(
                {}, optional={"name": st.sampled_from(["search", "explain", "cut"]) | JSONS, "arguments": JSONS}
            )
            | JSONS,
        },
    )
)
def test_no_message_ends_the_server(message: Any) -> None:
    """Every line gets a reply or none; the next line is answered."""
    server, _ = served()
    reply = server.answer(message if isinstance(message, str) else json.dumps(message))
    assert reply is None or json.loads(reply)["jsonrpc"] == "2.0"
    assert asked(server, "ping")["result"] == {}
