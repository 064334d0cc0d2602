"""Run any number of random databases on a real server: make fuzz-database ARGS="--server mysql-8.0 --cases 500".

Each failure is shrunk to a case file in tests/cases/databases, which the tests run again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from tests.databases import mysql_server, pg_server
from tests.databases.cases import Case, Line, read, written
from tests.databases.running import DatabaseServer, Outcome, play, replay
from tests.databases.shrinking import shrunk

SERVERS = ("mysql-5.7", "mysql-8.0", "mysql-9", "mariadb-10.11", "mariadb-11.4", "postgresql-15", "postgresql-18")
CASES = Path(__file__).parents[1] / "cases" / "databases"


@contextmanager
def served(name: str, folder: Path) -> Iterator[DatabaseServer]:
    """Run a server, given its public name, until the block ends."""

    kinds: dict[bool, Callable[[str, Path], Any]] = {True: pg_server.serve, False: mysql_server.serve}
    server: DatabaseServer = kinds[name.startswith("postgresql")](name, folder)
    try:
        yield server
    finally:
        server.stop()


def kind(problem: str) -> str:
    """Return the kind of a problem, by which a smaller case is compared with it."""
    for sort in ("the source ended", "does not catch up", "columns", "left out", "is no more", "differ"):
        if sort in problem:
            return sort
    return "rows"


def fails_alike(server: DatabaseServer, case: Case, why: list[str], patient: bool) -> bool:
    """Return whether a case, played alone, shows a problem of the same kind."""
    found = replay(server, case, patient=patient)
    return bool({kind(one) for one in why} & {kind(one) for wrong in found.wrong.values() for one in wrong})


def _alike(server: DatabaseServer, why: list[str], patient: bool, case: Case) -> bool:
    return fails_alike(server, case, why, patient)


def investigate(server: DatabaseServer, case: Case, why: list[str], seconds: float) -> Case | None:
    """Return the shrunk case, or None if the case does not fail alone."""
    for patient in (False, True, False, True):
        if fails_alike(server, case, why, patient):
            small = shrunk(case, partial(_alike, server, why, patient), seconds)
            lines = list[Line]()
            for line in small.lines:
                lines += [line, line._replace(mark="caught up")] if line.mark == "capture" and patient else [line]
            return replace(small, lines=tuple(lines), why="\n".join(one[:300] for one in why[:4]))
    return None


def report(server: DatabaseServer, outcome: Outcome, seed: int, folder: Path, seconds: float) -> list[str]:
    """Return the report on the failures of one run, each with its case file."""
    lines = []
    for name, why in outcome.wrong.items():
        print(f"failed: {name or 'the run'}: {why[0][:600]}", flush=True)
        lines += [f"FAILED {name or 'the run'} of seed {seed}:", *(f"    {one[:1500]}" for one in why[:5])]
        blamed = name if name in outcome.scripts else _blamed(server, outcome, why) if seconds else ""
        if not blamed:
            continue
        name, case = blamed, outcome.scripts[blamed]
        small = investigate(server, case, why, seconds) if seconds else None
        found = small or replace(case, why="does not fail alone\n" + "\n".join(one[:300] for one in why[:4]))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{server.name}-{seed}-{name.strip('_')}.case"
        file.write_text(written(found))
        lines.append(f"    {file} ({len(found.lines)} lines{'' if small else '; it does not fail alone'})")
    return lines


def _blamed(server: DatabaseServer, outcome: Outcome, why: list[str]) -> str:
    """Find the case that fails alone, if the run's failure was not attributed to one."""
    for name, case in outcome.scripts.items():
        if any(fails_alike(server, case, why, patient) for patient in (False, True)):
            return name
    return ""


def main() -> int:
    """Run; return 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="make fuzz-database", description=__doc__)
    parser.add_argument("--server", default="mysql-8.0", choices=SERVERS)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--batch", type=int, default=50, help="cases that are captured together")
    parser.add_argument("--kills", type=int, default=3, help="deaths of the capture in each batch")
    parser.add_argument("--shrink", type=float, default=60, help="seconds to shrink one failure; 0: not at all")
    parser.add_argument("--out", type=Path, default=CASES)
    parser.add_argument("--case", type=Path, help="run this case file alone")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    total, failed = Outcome(), 0
    with tempfile.TemporaryDirectory() as folder, served(options.server, Path(folder)) as server:
        if options.case:
            outcome = replay(server, read(options.case.read_text()))
            print(*(line for wrong in outcome.wrong.values() for line in wrong), outcome.summary(), sep="\n")
            return int(bool(outcome.wrong))
        for at in range(options.first, options.first + options.cases, options.batch):
            numbers = range(at, min(at + options.batch, options.first + options.cases))
            outcome = play(server, options.seed, numbers, kills=options.kills)
            print(f"{server.name} {numbers.start}-{numbers.stop - 1}: {outcome.summary()}", flush=True)
            print(*report(server, outcome, options.seed, options.out, options.shrink), sep="\n", flush=True)
            total = total.plus(outcome)
            failed += len(outcome.wrong)
    print(f"{options.server}, seed {options.seed}: {total.summary()}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
