"""Progress of a batch and the lag of a table are reported correctly."""

from __future__ import annotations

from joins.engine.progress import Operator, progress_of
from joins.runtime.cuts import Cuts, Lag, SourcePosition

REPORT = {
    "batchId": 7,
    "numInputRows": 300,
    "processedRowsPerSecond": 600.0,
    "durationMs": {"addBatch": 400, "walCommit": 20},
    "stateOperators": [{"numRowsTotal": 5, "customMetrics": {"rocksdbSstFileSize": 1000}}, {"numRowsTotal": 2}],
    "sources": [
        {"endOffset": {"a": {"0": 10, "1": 5}}, "latestOffset": {"a": {"0": 14, "1": 5}}},
        {"endOffset": None, "latestOffset": None},
    ],
}


def test_progress_is_read_from_sparks_report() -> None:
    """Rate, phases, state and the number of waiting changes are read."""
    progress = progress_of(REPORT)
    assert (progress.batch, progress.changes, progress.changes_per_second, progress.behind) == (7, 300, 600.0, 4)
    assert progress.phases == {"addBatch": 0.4, "walCommit": 0.02}
    assert progress.operators == (
        Operator(name="operator 0", rows=5, bytes=1000),
        Operator(name="operator 1", rows=2, bytes=0),
    )


def test_lag_counts_what_no_batch_reflects() -> None:
    """Positions and the age of the oldest, per source; zero once a batch covers them."""
    cuts = Cuts({"shop": {"sequence": 10, "gtid_set": "", "offset": 0}})
    assert cuts.lags(0) == {"shop": Lag(positions=0, seconds=0.0)}
    for sequence, at in ((12, 5_000), (15, 6_000)):
        ends = {"t": {0: sequence}}
        cuts.add(SourcePosition(source="shop", sequence=sequence, gtid_set="", offset=1, ends=ends, ts_ms=at))
    assert cuts.lags(8_000) == {"shop": Lag(positions=5, seconds=3.0)}
    cuts.cover({"t": {0: 12}})
    assert cuts.lags(8_000) == {"shop": Lag(positions=3, seconds=2.0)}
    cuts.cover({"t": {0: 15}})
    assert cuts.lags(8_000) == {"shop": Lag(positions=0, seconds=0.0)}
