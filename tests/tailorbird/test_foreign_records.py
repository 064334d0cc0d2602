"""Records in internal topics that Tailorbird did not write are ignored and counted; those of newer versions are not."""

from __future__ import annotations

import pytest

from cdc.model.errors import Fatal
from cdc.model.schema import schema_from_json
from cdc.process.kafka_foreign import own_record, tolerated
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
