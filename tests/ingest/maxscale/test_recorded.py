"""Replay recorded requests of MaxScale's own clients: they get the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cdc_recorded import recorded
from tests.support.cdc_served import served
from tests.support.changes_made import MemoryChanges, SourceLog, schema_of

CASES = sorted((Path(__file__).parents[2] / "cases" / "maxscale").glob("c*.case"))
WERE: dict[str, Any] = {"name": "varchar(20)", "paid": "decimal(10,2)", "at": "datetime(3)"}


def history() -> MemoryChanges:
    """The server's content during the recording: two versions of a table, every kind of change."""
    log = MemoryChanges()
    source = SourceLog(log)
    one = {"id": 1, "name": "é", "paid": "1.50", "at": None}
    two = {"id": 2, "name": None, "paid": None, "at": None}
    source.columns(schema_of(**WERE))
    source.transaction(("c", None, one), ("c", None, two))
    source.transaction(("u", one, {"id": 1, "name": 'a"\\b\n', "paid": "-0.01", "at": None}))
    source.columns(schema_of(version=2, **WERE, raw="blob"))
    source.transaction(("d", {**two, "raw": None}, None))
    source.transaction(("c", None, {"id": 3, "name": "c", "paid": "2.00", "at": None, "raw": "AP8="}))
    source.commit()
    return log


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_recorded_clients_get_the_recorded_answers(path: Path) -> None:
    """The connector and `cdc.py`, without line ends, in JSON and Avro, from a GTID or version on, and refused."""
    with served(history()) as server, server.client() as client:
        for who, said in recorded(path):
            if who == ">":
                client.send(said)
                continue
            while len(client.received) < len(said):
                more = client.socket.recv(65536)
                assert more, client.received
                client.received += more
            assert client.received == said
            client.received = b""
        if path.stem.endswith("wrong-password") or said == b"CLOSE":
            assert client.ended()
