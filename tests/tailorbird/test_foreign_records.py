"""Records in internal topics that Tailorbird did not write are ignored and counted; those of newer versions are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from cdc.model.errors import Fatal
from cdc.model.history import history_from_records
from cdc.model.naming import dead_letter_topic
from cdc.model.schema import schema_from_json
from cdc.process.kafka_foreign import own_record, tolerated
from cdc.stored.cells import load_barrier
from cdc.stored.layout import load_layout
from indexer.rebuild.targets import load_targets
from ingest.records.records import read_checkpoint
from joins.evaluate.texts import get_json_object
from joins.evaluate.unknown import UnknownValue
from tailorbird.operate.status.dead_letters import DeadLetterList, DeadLetterRecord
from tailorbird.provision.journal import load_entry
from tailorbird.verify.checks.runs import run_of
from tailorbird.web.dashboard.pages.http_panels import _message
from tests.support.foreign_records import counted

FORGED = (b"", b"\xff", b"7", b"[]", b"null", b"{}", b'{"format":1}', b'{"format":1,"columns":7}', b"[" * 2000)


def test_a_foreign_record_is_counted_and_ignored() -> None:
    for offset, value in enumerate(FORGED):
        assert own_record("t.schemas", offset, value, schema_from_json) is None
    assert counted("t.schemas") == len(FORGED)
    assert own_record("t.tombstones", 3, None, schema_from_json) is None
    assert counted("t.tombstones") == 0


def test_a_foreign_record_that_is_read_again_is_logged_and_counted_once() -> None:
    """Compacted topics are read at each start and by each command; every place has one line."""
    with capture_logs() as lines:
        for partition, offset in [(0, 7), (0, 7), (1, 7), (0, 8), (1, 7)]:
            assert own_record("t.positions", offset, b"{}", schema_from_json, partition) is None
    assert [(one["partition"], one["offset"]) for one in lines] == [(0, 7), (1, 7), (0, 8)]
    assert counted("t.positions") == 3


def test_a_record_of_a_newer_version_is_an_error() -> None:
    """Ignoring it could lose data, unless the topic's reader says that it cannot."""
    with pytest.raises(Fatal, match=r"t\.schemas, offset 3: a record of format 2"):
        own_record("t.schemas", 3, b'{"format":2}', schema_from_json)
    assert tolerated("t.deadletters", 3, b'{"format":2}', dict) == {"format": 2}


def test_a_position_of_no_format_is_foreign() -> None:
    """A forged position ends no capture; one of a newer version does."""
    for offset, value in enumerate((b'{"format":"x"}', b'{"format":0}', b'{"format":null}', b'{"format":[2]}')):

        def position(content: Any, stored: bytes = value) -> object:
            return read_checkpoint(stored)

        assert own_record("t.positions-x", offset, value, position) is None
    assert counted("t.positions-x") == 4
    with pytest.raises(Fatal, match="format 2"):
        read_checkpoint(b'{"format":2}')


def test_a_record_of_a_newer_version_is_not_reported_as_foreign() -> None:
    """A reader that ignores it says that a newer version wrote it, and what to do."""
    run = {"check": "hourly", "began_ms": 1, "ended_ms": 2, "turn": 0, "checked": [], "passes": 3}
    with capture_logs() as logged:
        assert tolerated("t.newer", 5, json.dumps({"format": 2, **run}).encode(), run_of) is None
    assert counted("t.newer") == 0
    [line] = logged
    assert line["event"] == "ignored a record of a newer format than this version reads"
    assert (line["topic"], line["offset"], line["format"], line["reads"]) == ("t.newer", 5, 2, 1)
    assert line["remedy"].startswith("upgrade")


def test_a_newer_settlement_of_a_dead_letter_is_not_reported_as_foreign() -> None:
    """The list of dead letters reads its records itself."""
    settlement = json.dumps({"format": 2, "stage": "settled", "row": 7}).encode()
    with capture_logs() as logged:
        DeadLetterList("t-newer").add(DeadLetterRecord(b"settled", settlement, 1, 0, 0))
    assert ["newer" in line["event"] for line in logged] == [True]
    assert counted(dead_letter_topic("t-newer")) == 0


DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize("read", [load_barrier, load_layout, load_targets, load_entry])
def test_deeply_nested_content_is_malformed(read: Callable[[bytes], object]) -> None:
    """Readers of stored JSON report it with the errors that their callers expect, and not with RecursionError."""
    with pytest.raises((ValueError, Fatal)):
        read(DEEP.encode())


def test_deeply_nested_messages_and_keys_are_ignored() -> None:
    """A browser's message, and the key of a tombstone in the schema history."""
    assert _message(DEEP) is None
    key = '["change",' + "[" * 1000 + "]" * 1000 + "]"
    assert history_from_records([(key, None)], "s") == history_from_records([], "s")


@pytest.mark.parametrize("depth", [100, 900, 1500, 5000])
def test_deeply_nested_values_are_evaluated_or_unknown(depth: int) -> None:
    """The oracle of `verify` evaluates JSON of any depth, or reports that it cannot."""
    text = "[" * depth + "]" * depth
    try:
        assert get_json_object(text, "$") == text
    except UnknownValue:
        assert depth > 100
