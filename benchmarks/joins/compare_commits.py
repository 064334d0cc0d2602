"""Compare the joins of this tree with those of another commit.

Both run over the same logs in turns, so that slow minutes of a shared machine affect both. The result is the CPU time
per change in the best turn of each, because noise only adds time.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.joins.proc_takes import run
from benchmarks.joins.report import Reading

ROOT = Path(__file__).parents[2]
TURNS = ("before", "now", "now", "before", "before", "now")
MOST_SLOWER = 0.05
# runs one shape with a tree's code
Run = Callable[[Path], Reading]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitComparison:
    """Readings of one shape with the other commit and with this tree."""

    shape: str
    before: tuple[Reading, ...]
    now: tuple[Reading, ...]

    @property
    def ratio(self) -> float:
        """Changes per CPU second of this tree, relative to the other commit."""
        return min(self.costs(self.before)) / min(self.costs(self.now))

    def costs(self, some: tuple[Reading, ...]) -> list[float]:
        """Return CPU seconds per change, or wall-clock seconds if an old commit does not report CPU time."""
        reported = all(one.cpu_seconds for one in (*self.before, *self.now))
        return [(one.cpu_seconds if reported else one.seconds) / one.changes for one in some]

    @property
    def line(self) -> str:
        """The result as a line of text."""
        cost = [min(self.costs(some)) * 1e6 for some in (self.now, self.before)]
        middle = [statistics.median(self.costs(some)) * 1e6 for some in (self.now, self.before)]
        rate = [max(one.rate for one in some) for some in (self.now, self.before)]
        withheld = max(one.withheld for one in (*self.now, *self.before))
        return (
            f"{self.shape:10} {self.ratio:.2f}× before   {cost[0]:.1f} against {cost[1]:.1f} µs of CPU per change"
            f" (medians {middle[0]:.1f}, {middle[1]:.1f}), {rate[0]:,.0f} against {rate[1]:,.0f} changes/s"
            f" (CPU steal at most {withheld:.1%})"
        )


def compare_shape(shape: str, before: Path, run: Run) -> CommitComparison:
    """Run one shape in turns with both trees."""
    found: dict[str, list[Reading]] = {"before": [], "now": []}
    for turn in TURNS:
        found[turn].append(run(before if turn == "before" else ROOT))
    return CommitComparison(shape=shape, before=tuple(found["before"]), now=tuple(found["now"]))


def compare_commits(commit: str, names: Iterable[str], scale: float, write: Callable[[str, Path], int]) -> int:
    """Run shapes with a commit and with this tree, and print a line for each. Return 1 if one became slower.

    `write` writes the log of a shape to a folder that does not exist, and returns the number of changes."""
    found = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TAILORBIRD_BENCH_FOLDER")) as folder, checkout(commit) as tree:
        for name in names:
            data = Path(folder) / name
            changes = write(name, data)

            def of(root: Path, name: str = name, data: Path = data, changes: int = changes) -> Reading:
                reading = run([sys.executable], "engine_tailorbird", name, scale, data, changes, root=root)
                return replace(reading, changes=changes)  # a log that several steps read counts once

            found.append(compare_shape(name, tree, of))
            shutil.rmtree(data)
            print(found[-1].line, flush=True)
    for miss in (missed := slower(found)):
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if missed else 0


def slower(found: Iterable[CommitComparison]) -> list[str]:
    """Return a line for each shape that lost more than is allowed."""
    return [
        f"{one.shape}: {one.ratio:.2f}× of before, at least {1 - MOST_SLOWER:.2f}× is required"
        for one in found
        if one.ratio < 1 - MOST_SLOWER
    ]


def is_commit(name: str) -> bool:
    """Return True if this repository has a commit with that name."""
    asked = ["git", "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode == 0


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Check out a commit into a temporary folder and build its kernel; remove it after the block."""
    folder = Path(tempfile.mkdtemp())
    tree = folder / "tree"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
    try:
        environ = {**os.environ, "PYTHONPATH": str(tree / "src")}
        # older commits have the module in another package
        in_package = (tree / "src" / "joins" / "kernel" / "proc_kernel.py").exists()
        module = "joins.kernel.proc_kernel" if in_package else "joins.proc_kernel"
        subprocess.run([sys.executable, "-m", module], cwd=tree, env=environ, check=True)
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
        shutil.rmtree(folder)
