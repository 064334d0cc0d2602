"""Measure CPU steal: the time in which the host of a virtual machine ran other machines. Benchmarks report it."""

from __future__ import annotations

from pathlib import Path

_STAT = Path("/proc/stat")
_FIELDS, _STEAL = 8, 7  # user nice system idle iowait irq softirq steal, in ticks; proc(5)


class CpuSteal:
    """Measures the share of processor time that the host withheld from this machine since the object was created.

    During that time a process waits although the machine looks idle. The share is 0 if the system does not report
    steal."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._total, self._cpu_steal = _ticks(stat)

    def share(self) -> float:
        """Return the share of CPU steal (0 to 1) since the last `lap`, or since this object was created."""
        total, cpu_steal = _ticks(self._stat)
        return (cpu_steal - self._cpu_steal) / (total - self._total) if total > self._total else 0.0

    def lap(self) -> float:
        """Return the share of CPU steal (0 to 1) like `share`, and begin a new interval."""
        share = self.share()
        self._total, self._cpu_steal = _ticks(self._stat)
        return share


def _ticks(stat: Path) -> tuple[int, int]:
    try:
        first = stat.read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return 0, 0
    fields = [int(field) for field in first.split()[1 : 1 + _FIELDS]]
    return sum(fields), fields[_STEAL]
