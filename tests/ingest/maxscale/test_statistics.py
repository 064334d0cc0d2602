"""Statistics of the router at /metrics, and the example client."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.ingest.maxscale.test_server import filled, shop
from tests.support.cdc_served import served

EXAMPLE = Path(__file__).parents[3] / "examples" / "cdc_client.py"


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"tailorbird_maxscale_{name}", labels) or 0.0


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cdc_client", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def counts() -> dict[str, float]:
    kinds = ("login", "REGISTER", "REQUEST-DATA", "QUERY-LAST-TRANSACTION", "QUERY-TRANSACTION", "CLOSE", "invalid")
    return {
        "connections": value("connections_total"),
        **{kind: value("requests_total", request=kind) for kind in kinds},
    }


def test_the_router_counts_connections_and_requests() -> None:
    """As MaxScale does for its service, and for its router the last GTID."""
    log, source = shop()
    filled(source, 1, 4)
    before = counts()
    with served(log) as server, server.client() as client:
        client.open().request("REQUEST-DATA d.t")
        rows = client.objects(4)
        for request in ("QUERY-LAST-TRANSACTION", "QUERY-TRANSACTION 0-0-1", "NONSENSE"):
            client.request(f"{request}\n")
            client.line()
        client.request("CLOSE\n")
        assert client.ended()
    grown = {name: count - before[name] for name, count in counts().items()}
    assert grown == dict.fromkeys(before, 1.0)
    last = {part: value("gtid", table="d.t", part=part) for part in ("domain", "server_id", "sequence")}
    assert last == {part: rows[-1][part] for part in last}
    assert value("gtid_timestamp_seconds", table="d.t") == rows[-1]["timestamp"]


def test_the_example_client_prints_rows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops with an error if the server refuses the login or the table, or is stopped."""
    client: Any = example()
    log, source = shop()
    filled(source, 1, 4)
    monkeypatch.setenv("CDC_PASSWORD", "foopasswd")
    with served(log) as server:
        host, port = server.address
        with client.CdcConnection(host, port) as connection:
            connection.login("foobar", "foopasswd")
            connection.register()
            schema, *rows = itertools.islice(connection.rows("d.t"), 4)
            assert [field["name"] for field in schema["fields"]][-2:] == ["id", "name"]
            assert [row["id"] for row in rows] == [1, 2, 3]
        address = ["--host", host, "--port", str(port), "--user"]
        assert client.main([*address, "foobar", "d.none"]) == 1
        assert "ERR NO-FILE" in capsys.readouterr().err
        monkeypatch.setattr(client.CdcConnection, "rows", lambda self, table, gtid: iter([{"id": 1, "name": "é"}]))
        client.main([*address, "foobar", "d.t", "0-1-2"])
        assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"id": 1, "name": "é"}
        monkeypatch.setenv("CDC_PASSWORD", "wrong")
        assert client.main([*address, "foobar", "d.t"]) == 1
        assert "login" in capsys.readouterr().err
    assert client.main([*address, "foobar", "d.t"]) == 1
