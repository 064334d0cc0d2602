"""The joins of this tree beside those of another commit: the same logs, turn about, so that a shared machine's slow
minutes meet both. What counts is the processors' time for a change, and the best turn of each: noise only adds."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.joins.report import Reading

ROOT = Path(__file__).parents[2]
TURNS = ("before", "now", "now", "before", "before", "now")
MOST_SLOWER = 0.05
# the tree, shape → a reading
Run = Callable[[Path], Reading]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitComparison:
    """Readings of one shape, of the other commit and of this tree."""

    shape: str
    before: tuple[Reading, ...]
    now: tuple[Reading, ...]

    @property
    def ratio(self) -> float:
        """Changes for a second of the processors of this tree, for each of the other's."""
        return min(self.costs(self.before)) / min(self.costs(self.now))

    def costs(self, some: tuple[Reading, ...]) -> list[float]:
        """Seconds for a change: of the processors, or by the clock where a commit is so old that it does not tell."""
        reported = all(one.cpu_seconds for one in (*self.before, *self.now))
        return [(one.cpu_seconds if reported else one.seconds) / one.changes for one in some]

    @property
    def line(self) -> str:
        """What a person is shown."""
        cost = [min(self.costs(some)) * 1e6 for some in (self.now, self.before)]
        middle = [statistics.median(self.costs(some)) * 1e6 for some in (self.now, self.before)]
        rate = [max(one.rate for one in some) for some in (self.now, self.before)]
        withheld = max(one.withheld for one in (*self.now, *self.before))
        return (
            f"{self.shape:10} {self.ratio:.2f}× before   {cost[0]:.1f} against {cost[1]:.1f} µs of CPU a change"
            f" (medians {middle[0]:.1f}, {middle[1]:.1f}), {rate[0]:,.0f} against {rate[1]:,.0f} changes/s"
            f" (withheld at most {withheld:.1%})"
        )


def compare_shape(shape: str, before: Path, run: Run) -> CommitComparison:
    """One shape in turns."""
    found: dict[str, list[Reading]] = {"before": [], "now": []}
    for turn in TURNS:
        found[turn].append(run(before if turn == "before" else ROOT))
    return CommitComparison(shape=shape, before=tuple(found["before"]), now=tuple(found["now"]))


def slower(found: Iterable[CommitComparison]) -> list[str]:
    """The shapes that lost more than is allowed."""
    return [
        f"{one.shape}: {one.ratio:.2f}× of before, {1 - MOST_SLOWER:.2f}× is allowed"
        for one in found
        if one.ratio < 1 - MOST_SLOWER
    ]


def is_commit(name: str) -> bool:
    """Whether this repository has a commit of that name."""
    asked = ["git", "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode == 0


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The tree of a commit, its kernel built, for as long as the block runs."""
    folder = Path(tempfile.mkdtemp())
    tree = folder / "tree"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
    try:
        environ = {**os.environ, "PYTHONPATH": str(tree / "src")}
        # older commits have it in another place
        rooms = (tree / "src" / "joins" / "kernel" / "proc_kernel.py").exists()
        module = "joins.kernel.proc_kernel" if rooms else "joins.proc_kernel"
        subprocess.run([sys.executable, "-m", module], cwd=tree, env=environ, check=True)
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
        shutil.rmtree(folder)
