"""The host's share of the processors, from what the kernel counts."""

from __future__ import annotations

from pathlib import Path

from tailorbird.operate.probes.proc_steal import CpuSteal


def _stat(path: Path, *, user: int, idle: int, steal: int) -> None:
    path.write_text(f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n", encoding="ascii")


def test_the_share_is_of_all_time_since_the_beginning(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    _stat(stat, user=1000, idle=500, steal=500)
    cpu_steal = CpuSteal(stat)
    assert cpu_steal.share() == 0.0  # no time has passed
    _stat(stat, user=1060, idle=510, steal=530)
    assert cpu_steal.share() == 0.3
    _stat(stat, user=1160, idle=510, steal=530)
    assert cpu_steal.share() == 0.15


def test_a_lap_begins_again(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    _stat(stat, user=0, idle=0, steal=0)
    cpu_steal = CpuSteal(stat)
    _stat(stat, user=50, idle=0, steal=50)
    assert cpu_steal.lap() == 0.5
    _stat(stat, user=150, idle=0, steal=50)
    assert cpu_steal.lap() == 0.0


def test_it_is_nothing_where_no_one_counts(tmp_path: Path) -> None:
    assert CpuSteal(tmp_path / "none").share() == 0.0


def test_the_kernel_s_own_file_is_read() -> None:
    assert 0.0 <= CpuSteal().share() <= 1.0
