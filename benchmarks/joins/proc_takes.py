"""Run an engine in a separate process, and repeat the run if the CPU steal is high."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.joins.report import MOST_WITHHELD, Reading, reading_of
from cdc.model.artefacts import cache_folder
from tailorbird.operate.probes.proc_steal import CpuSteal

ROOT: Final = Path(__file__).parents[2]
FLINK: Final = "apache-flink==2.3.*"
TIMEOUT: Final = 3600  # seconds
TAKES: Final = 3


def run(
    python: list[str], engine: str, name: str, scale: float, data: Path, changes: int, *words: str, root: Path = ROOT
) -> Reading:
    """Return the first of three runs with little CPU steal, or else the one with the least.

    `words`: further arguments of the engine.
    """
    takes: list[Reading] = []
    while len(takes) < TAKES and not (takes and takes[-1].withheld <= MOST_WITHHELD):
        takes.append(_take(python, engine, name, scale, data, changes, words, root))
        last, called = takes[-1], " ".join([engine, *words])
        reported = f"{called} on {name}: {last.rate:,.0f} changes/s, CPU steal {last.withheld:.1%}"
        print(reported, file=sys.stderr, flush=True)
    return min(takes, key=lambda take: take.withheld)


def _take(
    python: list[str],
    engine: str,
    name: str,
    scale: float,
    data: Path,
    changes: int,
    words: tuple[str, ...],
    root: Path,
) -> Reading:
    scratch = data.parent / f"{name}-{engine}"
    scratch.mkdir()
    environ = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    command = [*python, "-m", f"benchmarks.joins.{engine}", name, str(scale), str(data), str(scratch), *words]
    cpu_steal = CpuSteal()
    done = subprocess.run(command, env=environ, cwd=root, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    withheld = cpu_steal.share()
    shutil.rmtree(scratch)
    if done.returncode:
        raise SystemExit(f"{engine} on {name} failed:\n{done.stderr[-3000:]}")
    return replace(reading_of(done.stdout, changes), withheld=withheld)


def flink_python() -> str:
    """Return the Python of Flink's environment; create the environment if it does not exist."""
    folder = cache_folder(os.environ) / "flink-2.3"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        # apache-beam, a build dependency of Flink, requires an old setuptools
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "setuptools<80", "wheel", FLINK], check=True)
        (folder / "complete").touch()
    return str(python)
