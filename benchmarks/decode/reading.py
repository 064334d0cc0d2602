"""Define the arguments and the answer of a Python reader; the readers in Go and Java have the same.

    reader --port 13500 --user cdc --password cdc --file binlog.000002 --position 195 --gtids … --table bulk
           --changes 500000 [--check]

The answer is one line of JSON on standard output: `version`, the counts of `inserts`, `updates`, `deletes`, `seconds`
from the first change to the last, `cpu` (CPU seconds of all threads in this time), and with `--check` the `sums` of
`canonical`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from benchmarks.decode.canonical import Checksum


class Request(argparse.Namespace):
    """Parsed arguments of a reader."""

    port: int
    user: str
    password: str
    file: str
    position: int
    gtids: str
    table: str
    changes: int
    check: bool


def parse_request(arguments: Sequence[str] | None = None) -> Request:
    """Parse the command line of a reader."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    for name in ("user", "password", "file", "gtids", "table"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--position", type=int, required=True)
    parser.add_argument("--changes", type=int, required=True)
    parser.add_argument("--check", action="store_true")
    return parser.parse_args(arguments, namespace=Request())


def answer(*, version: str, counts: tuple[int, int, int], seconds: float, cpu: float, checksum: Checksum | None) -> str:
    """Return the line that a reader prints."""
    inserts, updates, deletes = counts
    return json.dumps(
        {
            "version": version,
            "inserts": inserts,
            "updates": updates,
            "deletes": deletes,
            "seconds": seconds,
            "cpu": cpu,
            "sums": checksum.sums() if checksum else None,
        }
    )
