"""Every listening port under attack: memory stays within its limit, and honest clients are served within a second."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdc.process.proc_open_files import allow_open_files
from tests.hostile import port_attacks
from tests.hostile.port_attacks import Target, exchange
from tests.support.gateways import certificates

pytestmark = pytest.mark.timeout(120)

# MB by which a server's memory may grow, as docs/security.md states
MEMORY = {
    "operation": 32, "replication": 256, "syslog": 96, "maxscale": 48, "api": 128, "gateway": 128, "dashboard": 64,
}  # fmt: skip
COMPRESSED = ("api", "gateway", "dashboard")
ATTACKS: tuple[Callable[[Target], None], ...] = (port_attacks.idle, port_attacks.half, port_attacks.endless)


class Served:
    """A server in a process of its own."""

    def __init__(self, name: str, folder: Path, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.lines: Iterator[str] = iter(process.stdout)
        self.name, self.folder, self._process = name, folder, process
        self.port = int(next(self.lines))

    def target(self) -> Target:
        return Target(self.name, self.port, self.folder)

    def memory(self, kind: str) -> float:
        """Return the resident memory in MB: `VmRSS` now, `VmHWM` the highest so far."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"{kind}:\s+(\d+) kB", status)
        assert found is not None, "the server has ended"
        return int(found[1]) / 1024

    def seconds(self) -> tuple[float, float]:
        """Return the durations of honest exchanges: of the first one, which waits for the attackers' connections to be
        accepted, and the median of three, since other tests use the processor too."""
        found = [self._once() for _ in range(3)]
        return found[0], sorted(found)[1]

    def _once(self) -> float:
        begun = time.monotonic()
        exchange(self.target(), self.lines)
        return time.monotonic() - begun

    def ready(self) -> None:
        """Wait for the first answer."""
        deadline = time.monotonic() + 60
        while True:
            try:
                exchange(self.target(), self.lines)
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    allow_open_files()
    return certificates(tmp_path_factory.mktemp("ports"))


@contextmanager
def served(name: str, folder: Path) -> Iterator[Served]:
    words = [sys.executable, "-m", "tests.hostile.port_servers", name, str(folder)]
    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            one = Served(name, folder, process)
            one.ready()
            yield one
        finally:
            process.kill()


@pytest.mark.parametrize("name", MEMORY)
def test_a_port_under_attack_serves_honest_clients(name: str, folder: Path) -> None:
    """A thousand idle connections, a thousand half requests, endless lines, bombs, and noise from a seeded fuzzer."""
    with served(name, folder) as server:
        before, times = server.memory("VmRSS"), dict[str, tuple[float, float]]()
        for attack in (*ATTACKS, port_attacks.bomb) if name in COMPRESSED else ATTACKS:
            target = server.target()
            attack(target)
            times[attack.__name__] = server.seconds()
            target.close()
        port_attacks.noise(server.target(), random.Random(35), 100)
        times["noise"] = server.seconds()
        grown = server.memory("VmHWM") - before
        print(
            name,
            {what: (round(first, 2), round(usual, 2)) for what, (first, usual) in times.items()},
            round(grown),
            "MB",
        )
    assert max(usual for _, usual in times.values()) < 1.0, times
    assert times["idle"][0] < 1.0, "the first client waited in the queue behind a thousand idle ones"
    assert grown < MEMORY[name]
