"""Health of a capture: it progresses, and is not merely alive."""

from __future__ import annotations

from cdc.model.event import Position
from ingest.report.health import Health, covers


def at(pos: int, file: str = "binlog.000002", gtids: str = "") -> Position:
    return Position(file=file, pos=pos, gtid_set=gtids, sequence=pos)


def test_an_idle_capture_stays_healthy() -> None:
    """Caught up with the newest known head, an idle capture needs no commit to count as progressing."""
    health = Health(started=0.0)
    health.resumed(at(100))
    for now in range(0, 3600, 5):
        health.saw_head(at(100), float(now))
        assert health.judge(now + 1.0).healthy
    assert "caught up" in health.judge(3596.0).reason


def test_a_capture_that_lags_without_progress_is_stuck() -> None:
    """While the head is ahead, only commits that advance the position count."""
    health = Health(started=0.0)
    health.resumed(at(100))
    for now in range(0, 100, 5):
        health.saw_head(at(200 + now), float(now))
        if now < 50:
            health.committed(at(101 + now), float(now))
            assert health.judge(now + 1.0).healthy
        else:
            health.committed(at(146), float(now))
    verdict = health.judge(96.0)
    assert (verdict.status, verdict.healthy) == ("stuck", False)
    assert "nothing was committed for 51 s" in verdict.reason
    health.committed(at(500), 97.0)
    assert health.judge(97.0).healthy


def test_a_snapshot_progresses_at_an_unchanged_position() -> None:
    """Rows of a snapshot are progress."""
    health = Health(started=0.0)
    health.resumed(at(100))
    for now in range(0, 200, 10):
        health.saw_head(at(900), float(now))
        health.captured(float(now))
        assert health.judge(now + 5.0).healthy


def test_an_unavailable_source_or_kafka_is_named() -> None:
    """A silent source, and sessions that fail repeatedly, are faults with their reason."""
    health = Health(started=0.0)
    assert health.judge(10.0).status == "starting"
    health.no_head("connection refused")
    assert health.judge(10.0).reason == "connection refused"
    assert health.judge(40.0).status == "away"
    assert "connection refused" in health.judge(40.0).reason
    health.resumed(at(5))
    health.saw_head(at(5), 50.0)
    assert health.judge(51.0).healthy
    health.failed("Kafka is unavailable")
    health.saw_head(at(5), 90.0)
    assert (health.judge(91.0).status, health.judge(91.0).reason) == ("away", "Kafka is unavailable")
    health.resumed(at(5))
    assert health.judge(92.0).healthy


def test_a_polled_source_must_poll() -> None:
    """It has no head: a completed poll is its progress."""
    health = Health(started=0.0, polls=True)
    assert health.judge(1.0).status == "starting"
    health.captured(20.0)
    assert health.judge(49.0).healthy
    assert health.judge(51.0).status == "stuck"


def test_positions_compare_by_gtids_or_by_file() -> None:
    """After a rotation the file differs although nothing is missing; sequence numbers compare as numbers."""
    assert covers(at(9000, "binlog.000001", "u:1-5"), at(156, "binlog.000002", "u:1-5"))
    assert covers(at(4, "binlog.1000000"), at(900, "binlog.999999"))
    assert not covers(at(100), at(101))
    assert not covers(at(100, "other.000009"), at(1))
