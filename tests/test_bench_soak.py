"""The soak's samples: a value per series and moment, and the heap of a JVM."""

from __future__ import annotations

import pytest

from benchmarks.bench_soak import process_of
from benchmarks.index.chart import growth, lower_quartile, mean, part
from benchmarks.soak.samples import Heap, Samples, heap

PRINTED = """4242:
 def new generation   total 78656K, used 20480K [0x00000000c0000000, 0x00000000c5550000, 0x00000000d5550000)
  eden space 69952K,  18% used [0x00000000c0000000, 0x00000000c0c8f2c8, 0x00000000c4450000)
 tenured generation   total 174784K, used 102400K [0x00000000d5550000, 0x00000000dfffc000, 0x0000000100000000)
   the space 174784K,   2% used [0x00000000d5550000, 0x00000000d59e2270, 0x00000000d59e2400, 0x00000000dfffc000)
 Metaspace       used 91230K, committed 92160K, reserved 1179648K
"""


def test_every_series_has_a_value_for_every_moment() -> None:
    """A process that is away keeps its last value, one that begins later has zeros before."""
    samples = Samples()
    for minute, values in enumerate([{"a": 1.0}, {"b": 2.0}, {"a": 3.0, "b": 4.0}]):
        samples.add(minute, values, {})
    assert samples.series == {"a": [1.0, 1.0, 3.0], "b": [0.0, 2.0, 4.0]}


def test_a_process_is_compared_within_its_longest_run() -> None:
    """The run after a kill begins with other memory; what is no process is compared over the whole time."""
    samples = Samples()
    for minute, pid in enumerate([7, 7, 7, 0, 8, 8, 8, 8, 0, 9]):
        samples.add(minute, {"indexer: MiB": float(pid), "topics": 3.0}, {"indexer": pid} if pid else {})
    assert samples.series["indexer: MiB"][samples.compared("indexer: MiB")] == [8.0] * 4
    assert samples.compared("topics") == slice(0, 10)


def test_each_capture_is_a_process_of_its_own() -> None:
    """The files of two captures in one series would hide that only one of them leaks."""
    assert process_of("python -m ingest shop.yml --source crm --metrics-port 1") == "capture of crm"
    assert process_of("python -m indexer shop.yml --metrics-port 1") == "indexer"
    assert process_of("python -m tailorbird run shop.yml") is None


def test_a_heap_is_the_sum_of_its_generations() -> None:
    """Metaspace is no part of the heap."""
    assert heap(PRINTED) == Heap(committed=(78656 + 174784) / 1024, used=120.0)
    with pytest.raises(ValueError, match="no generations"):
        heap("4242:\n garbage-first heap total 1K\n")


def test_growth_compares_the_last_two_parts() -> None:
    """What happens before, such as the start of a process, does not count."""
    steady, leaking = [1.0, 2.0] * 4 + [100.0] * 8, [1.0] * 8 + [100.0] * 4 + [112.0] * 4
    assert growth(steady, parts=4) == 0
    assert growth(leaking, parts=4) == pytest.approx(0.12)
    assert growth([1.0] * 5 + [10.0] * 5 + [11.0] * 5) == pytest.approx(0.1)
    assert part(leaking, 3, 4) == [112.0] * 4


def test_a_disk_is_measured_between_two_compactions() -> None:
    """A higher peak is no growth; a higher level after each compaction is."""
    peaks, levels = [30.0, 30.0, 50.0, 60.0, 30.0, 30.0, 70.0, 90.0], [30.0, 30.0, 50.0, 60.0, 36.0, 36.0, 70.0, 90.0]
    assert growth([0.0] * 8 + peaks, parts=4, level=lower_quartile) == 0
    assert growth([0.0] * 8 + levels, parts=4, level=lower_quartile) == pytest.approx(0.2)
    assert lower_quartile([]) == mean([]) == 0
