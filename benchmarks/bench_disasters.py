"""Lose a part of a running installation, restore it by the documented steps, and measure the time until it is complete.

    make bench-disasters
    make bench-disasters ARGS="--orders 1000000 --only kafka --only hbase"

Starts servers of its own, in a temporary folder. For each disaster, traffic changes rows all the time. The time runs
from the loss until the index shows what the databases have committed. Then the traffic ends, and `verify` compares log,
table and index with the databases. The exit code is 1 if it finds a difference.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.decode.proc_peers import machine
from benchmarks.disasters.losses import DISASTERS, Disaster
from benchmarks.disasters.world import World
from benchmarks.ending import end
from cdc.model.errors import TailorbirdError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    names = [one.name for one in DISASTERS]
    parser = argparse.ArgumentParser(
        prog="make bench-disasters", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--orders", type=int, default=20_000, help="rows of the joined table at the start")
    parser.add_argument("--rate", type=float, default=30.0, help="changes per second")
    parser.add_argument("--only", choices=names, action="append", help="only this disaster; may be repeated")
    parser.add_argument("--port-offset", type=int, default=5_000, help="the ports of the servers")
    parser.add_argument("--json", action="store_true", help="print one JSON object per disaster")
    options = parser.parse_args(arguments)
    said = lambda line: print(f"    {time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)  # noqa: E731
    print(machine(), file=sys.stderr)
    chosen = options.only or names
    folder = Path(tempfile.mkdtemp(prefix="tb-"))
    world = World(folder, options.port_offset, said, volumes=any(one.startswith("full") for one in chosen))
    try:
        world.fill(options.orders)
        world.command("apply", str(world.file))
        world.run()
        world.complete()
        found = [_one(world, one, options.rate) for one in DISASTERS if one.name in chosen]
    except TailorbirdError as error:
        print(f"bench-disasters: {error}\n{world.log_tail()}", file=sys.stderr)
        return error.exit_code
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    for one in found:
        print(
            json.dumps(one)
            if options.json
            else "- {lost}: {seconds:.0f} s, {changes:,} changes made in it".format(**one)
        )
    return 0 if all(one["equal"] for one in found) else 1


def _one(world: World, disaster: Disaster, rate: float) -> dict[str, Any]:
    """Lose, restore, wait and compare."""
    world.said(f"== {disaster.lost}")
    with world.traffic(rate) as changes:
        time.sleep(5.0)
        before, began = changes(), time.monotonic()
        disaster.lose(world)
        disaster.restore(world)
        world.complete()
        seconds, made = time.monotonic() - began, changes() - before
    world.complete()
    verdicts = world.verdicts()
    equal = bool(verdicts) and all(one.get("outcome") == "equal" for one in verdicts)
    world.said(f"{seconds:.1f} s, {'equal' if equal else verdicts}")
    return {"name": disaster.name, "lost": disaster.lost, "seconds": round(seconds, 1), "changes": made, "equal": equal}


if __name__ == "__main__":
    sys.exit(end(main))
