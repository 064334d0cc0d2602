"""Records in internal topics that Tailorbird did not write are ignored and counted; those of newer versions are not."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from cdc.model.errors import Fatal
from cdc.model.naming import dead_letter_topic
from cdc.model.schema import schema_from_json
from cdc.process.kafka_foreign import own_record, tolerated
from tailorbird.operate.status.dead_letters import DeadLetterList, DeadLetterRecord
from tailorbird.verify.checks.runs import run_of
from tests.support.foreign_records import counted

FORGED = (b"", b"\xff", b"7", b"[]", b"null", b"{}", b'{"format":1}', b'{"format":1,"columns":7}', b"[" * 2000)


def test_a_foreign_record_is_counted_and_ignored() -> None:
    for value in FORGED:
        assert own_record("t.schemas", 3, value, schema_from_json) is None
    assert counted("t.schemas") == len(FORGED)
    assert own_record("t.tombstones", 3, None, schema_from_json) is None
    assert counted("t.tombstones") == 0


def test_a_record_of_a_newer_version_is_an_error() -> None:
    """Ignoring it could lose data, unless the topic's reader says that it cannot."""
    with pytest.raises(Fatal, match=r"t\.schemas, offset 3: a record of format 2"):
        own_record("t.schemas", 3, b'{"format":2}', schema_from_json)
    assert tolerated("t.deadletters", 3, b'{"format":2}', dict) == {"format": 2}


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
