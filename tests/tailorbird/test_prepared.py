"""`tailorbird status` shows the XA transactions whose rows wait for their commit."""

from __future__ import annotations

from tailorbird.operate.status.kafka_captured import position_of
from tailorbird.operate.status.prepared import prepared_at


def test_open_xa_transactions_are_counted_with_their_age() -> None:
    """They come from the stored position; a source without any is not listed."""
    open_ones = [["1", "u:1", "f", 4, 1_000, [["d", "t"]]], ["2", "u:2", "f", 9, 61_000, []]]
    stored = {
        "position": {"gtid_set": "", "sequence": 7, "file": "f", "pos": 99},
        "snapshot": "done",
        "state": {"prepared": open_ones},
    }
    captured = {"shop": position_of(stored, 3), "other": position_of({**stored, "state": {}}, 3)}
    (one,) = prepared_at(captured, 91_000)
    assert (one.source, one.transactions, one.oldest_seconds) == ("shop", 2, 90.0)
    assert str(one) == "source shop: 2 XA transactions are prepared, the oldest for 90 s; see XA RECOVER there"
