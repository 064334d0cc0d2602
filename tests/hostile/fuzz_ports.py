"""Fuzz every listening port until it is interrupted or a server fails: `make fuzz-ports ARGS="--seed 1 --rounds 100"`.

Each round sends random bytes after random parts of valid requests to each server. Then an honest client must be served
and the server's memory must be within its limit. The seed of each round is printed, so that a failure can be repeated.
"""

from __future__ import annotations

import argparse
import itertools
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.hostile.port_attacks import noise
from tests.hostile.test_ports import MEMORY, all_served
from tests.support.gateways import certificates


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=0, help="0: until it is interrupted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, ExitStack() as open_ones:
        folder = certificates(Path(made))
        servers = [*all_served(open_ones, folder).values()]
        before = {server.name: server.memory("VmRSS") for server in servers}
        rounds = (
            itertools.count(options.seed) if not options.rounds else range(options.seed, options.seed + options.rounds)
        )
        for seed in rounds:
            for server in servers:
                noise(server.target(), random.Random(seed), 200)
                seconds, grown = server.seconds(), server.memory("VmHWM") - before[server.name]
                print(f"seed {seed} {server.name}: {seconds:.3f} s, {grown:.0f} MB", flush=True)
                assert grown < MEMORY[server.name], f"{server.name} uses too much memory after seed {seed}"


if __name__ == "__main__":
    main()
