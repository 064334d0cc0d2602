"""Shared code of the benchmarks over cached logs: options, progress output, exit codes.

A benchmark starts servers. SIGTERM ends it like Ctrl-C, so that it stops them.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.decode.proc_peers import load, machine
from benchmarks.ending import INTERRUPTED, ended_once
from cdc.model.errors import TailorbirdError

BULK_CHANGES, OLTP_CHANGES = 500_000, 200_000
RESULTS = Path(__file__).parent.parent / "docs" / "results"


def options_of(name: str, description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return the parser of a benchmark with the options that all of them have."""
    parser = argparse.ArgumentParser(
        prog=f"make {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=rounds, help=f"timed passes per side (default {rounds})")
    parser.add_argument("--bulk", type=int, default=BULK_CHANGES, metavar="CHANGES", help="size of the bulk binlog")
    parser.add_argument("--oltp", type=int, default=OLTP_CHANGES, metavar="CHANGES", help="size of the OLTP binlog")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, progress on standard error")
    parser.add_argument("--output", type=Path, help=f"the results as Markdown (a full run: docs/results/{name[6:]}.md)")
    return parser


def run_benchmark(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    run: Callable[[argparse.Namespace, str], int],
) -> int:
    """Run a benchmark with its options and its arguments as given; return its exit code."""
    options = parser.parse_args(arguments)
    name = parser.prog.removeprefix("make ")
    if options.rounds < 1 or options.bulk < 1 or options.oltp < 1:
        print(f"{name}: --rounds, --bulk and --oltp must be at least 1", file=sys.stderr)
        return 2
    with ended_once():
        try:
            return run(options, shlex.join(sys.argv[1:] if arguments is None else arguments))
        except TailorbirdError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            print(f"{name}: interrupted; the servers are stopped", file=sys.stderr)
            return INTERRUPTED


def run_facts(name: str, given: str, versions: str) -> dict[str, str]:
    """Return the command, date, machine and versions of a run."""
    return {
        "command": f'`make {name} ARGS="{given}"`' if given else f"`make {name}`",
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": f"{machine()}; load before {load():.1f}",
        "versions": versions,
    }


def output_of(options: argparse.Namespace, file: str, *, full: bool) -> Path | None:
    """Return the file for the results: the given one, or docs/results after a full run; None otherwise."""
    given: Path | None = options.output
    whole = full and (options.bulk, options.oltp) == (BULK_CHANGES, OLTP_CHANGES)
    return given or (RESULTS / file if whole else None)


def warn_if_busy() -> None:
    """Warn if other processes use the machine."""
    if load() > 1:
        report(f"The load of this machine is {load():.1f}. Repeat on an idle machine for reliable figures.")


def report(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)
