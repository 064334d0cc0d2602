"""A failing query reports its cause and remedy in one line, however deeply Spark has wrapped it."""

from __future__ import annotations

import pytest

from joins.engine.causes import cause_of, is_full_disk, remedy_for

FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
SINK = """An exception was raised by the Python Proxy. \
Return Message: Traceback (most recent call last):
  File "clientserver.py", line 662, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "foreach_batch.py", line 153, in write
    self.sink.begin(batch)
OSError: [Errno 28] No space left on device: '/srv/tailorbird/checkpoints/shop/wide/query.json'
"""
TASK = """Job aborted due to stage failure: Task 1 in \
stage 3.0 failed 4 times, most recent failure: Lost task 1.3 in stage 3.0 (TID 9) (10.0.0.7 executor 1): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'happybase'

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Driver stacktrace:
"""
JAVA = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed
	at org.apache.spark.Foo.bar(Foo.scala:1)
Caused by: org.rocksdb.RocksDBException: While open a file for appending: /x/000012.sst: No space left on device
	at org.rocksdb.RocksDB.open(Native Method)
	... 12 more
"""
LOST = """Partition shop.shop.orders-0's offset was changed from 9 \
to 3. Some data may have been lost because they are not available in Kafka any more; either the data was aged out"""
OURS = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "a.py", line 1, in f
thriftpy2.transport.TTransportException: TTransportException(type=1, message='refused')

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in g
cdc.model.errors.Fatal: HBase refused put; look into its log
"""


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        (FAILED + SINK, "OSError: [Errno 28] No space left on device: '/srv/tailor", ""),
        (FAILED + TASK, "ModuleNotFoundError: No module named 'happybase'", "docs/cluster.md"),
        (
            JAVA,
            "RocksDBException: While open a file for appending: /x/000012.sst: No space left on device",
            "",
        ),
        (FAILED + LOST, "Partition shop.shop.orders-0", "snapshot"),
        (FAILED + "Destination is no directory: /x SQLSTATE: XXKST", "Destination is no directory: /x", ""),
        (OURS, "Fatal: HBase refused put; look into its log", ""),
        ("", "RuntimeError", ""),
        ("something else\nsecond line", "something else", ""),
        ("a.b.FooException\nwith its words below", "FooException: with its words below", ""),
    ],
)
def test_the_innermost_cause_is_reported(text: str, cause: str, remedy: str) -> None:
    """Not `Return Message: Traceback (most recent call last):` and nothing more."""
    error = RuntimeError(text)
    assert cause_of(error).startswith(cause)
    assert "\n" not in cause_of(error)
    assert "Traceback" not in cause_of(error)
    assert remedy in remedy_for(error)
    assert bool(remedy) == bool(remedy_for(error))
    assert is_full_disk(error) == ("No space" in cause)


def test_the_remedy_for_lost_data_comes_in_its_order() -> None:
    """A rebuild before the snapshot would read a log that does not hold the rows."""
    reported = remedy_for(RuntimeError(LOST))
    assert reported.index("snapshot") < reported.index("--rebuild")
