"""Decode the same binlogs with Tailorbird's library and three peers, and print the ratios of their rates.

    make bench-decode
    make bench-decode ARGS="--rounds 1 --bulk 50000 --oltp 10000 --json"

In a first pass, each library sums every value of both images, and the sums are compared. Then follow timed passes that
only materialise the values, with the libraries in turn. The time is from the first change to the last, without the
start. Exit code 1: values differ, or a required ratio is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from benchmarks.decode.mysql_log import LogServer, serve_logs
from benchmarks.decode.proc_peers import build_readers, check_tools, read_once, runtimes
from benchmarks.decode.report import (
    LIBRARIES,
    Library,
    Measurement,
    Reading,
    as_json,
    differences,
    document,
    rate_table,
    ratios,
)
from benchmarks.decode.workload import SHAPES, Shape, ShapeName, shape
from benchmarks.harness import options_of, output_of, report, run_benchmark, run_facts, warn_if_busy
from benchmarks.page import write_page
from cdc.model.artefacts import cache_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = options_of("bench-decode", __doc__, 3)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="run only this binlog; may be repeated")
    parser.add_argument("--library", action="append", choices=LIBRARIES, help="run only this library; may be repeated")
    parser.add_argument("--port", type=int, default=13500, help="port of the private MySQL server (default 13500)")
    return run_benchmark(parser, arguments, _run)


def _run(options: argparse.Namespace, given: str) -> int:
    libraries: list[Library] = [name for name in LIBRARIES if not options.library or name in options.library]
    names: list[ShapeName] = [name for name in SHAPES if not options.shape or name in options.shape]
    shapes = (shape("bulk", options.bulk), shape("oltp", options.oltp))
    check_tools(libraries)
    cache = cache_folder(os.environ)
    warn_if_busy()
    report("building the readers")
    commands = build_readers(cache, libraries)
    checked: dict[ShapeName, list[Reading]] = {}
    measurements: list[Measurement] = []
    with serve_logs(cache, shapes, options.port, report) as server:
        facts = run_facts("bench-decode", given, f"MySQL {server.version}, {runtimes(libraries)}")
        for chosen in (one for one in shapes if one.name in names):
            checked[chosen.name] = _check(commands, server, chosen)
            if lines := differences(checked[chosen.name], chosen.changes):
                print(*(f"{chosen.name}: {line}" for line in lines), sep="\n", file=sys.stderr)
                return 1
            report(f"{chosen.name}: {' = '.join(commands)} for every value of {chosen.changes:,} changes")
            measurements += _measure(commands, server, chosen, options.rounds)
    return _show(options, libraries, measurements, checked, facts)


def _check(commands: dict[Library, list[str]], server: LogServer, chosen: Shape) -> list[Reading]:
    readings = []
    for library, command in commands.items():
        report(f"{chosen.name}: summing the values of {library}")
        readings.append(read_once(library, command, server, server.places[chosen.name], chosen, check=True))
    return readings


def _measure(commands: dict[Library, list[str]], server: LogServer, chosen: Shape, rounds: int) -> list[Measurement]:
    readings: dict[Library, list[Reading]] = {library: [] for library in commands}
    for turn in range(rounds):
        for library, command in commands.items():
            reading = read_once(library, command, server, server.places[chosen.name], chosen, check=False)
            readings[library].append(reading)
            rate = reading.changes / reading.seconds
            report(f"{chosen.name}: round {turn + 1} of {rounds}, {library}: {rate:,.0f} changes/s")
    return [Measurement(shape=chosen.name, readings=tuple(passes)) for passes in readings.values()]


def _show(
    options: argparse.Namespace,
    libraries: list[Library],
    measurements: list[Measurement],
    checked: dict[ShapeName, list[Reading]],
    facts: dict[str, str],
) -> int:
    complete = len(libraries) == len(LIBRARIES) and len(checked) == len(SHAPES)
    output = output_of(options, "decode.md", full=complete and options.rounds >= 3)
    if output:
        write_page(output, document(measurements=measurements, checked=checked, facts=facts))
    if options.json:
        print(json.dumps(as_json(measurements, facts), ensure_ascii=False, indent=2))
    else:
        print(*(f"{name}: {value}" for name, value in facts.items()), *rate_table(measurements), sep="\n")
        print(*(ratio.line for ratio in ratios(measurements)), sep="\n")
    for ratio in ratios(measurements):
        if "missed" in ratio.verdict:
            print(f"{ratio.line}: {ratio.verdict}", file=sys.stderr)
    return int(any(ratio.failed for ratio in ratios(measurements)))


if __name__ == "__main__":
    sys.exit(main())
