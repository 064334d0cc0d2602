"""What happens during a soak: kills, schema changes, snapshots and verifications, at random."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from random import Random

from benchmarks.disasters.world import World
from benchmarks.soak.samples import children, command_of
from tailorbird.devtools.stack.settings import ServiceName

_JOIN = " -m joins "
_SERVERS: tuple[ServiceName, ...] = ("kafka", "hbase", "solr", "mysql-shop", "mysql-crm")


class Events:
    """Chooses and runs events. `done` counts them by name; `different` collects what `verify` reported."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random, self._added = world, random, 0
        self.done: dict[str, int] = {}
        self.different: list[str] = []

    def next(self, *, early: bool) -> None:
        """Run one random event, and wait for its end. Only an `early` one may kill the join, whose caches fill for a
        quarter of an hour after a start."""
        choices: list[tuple[float, str, Callable[[], None]]] = [
            (3.0, "a process is killed", self._kill_process),
            (1.0, "a server is killed", self._kill_server),
            (1.5, "a schema change", self._alter),
            (1.5, "a snapshot", self._snapshot),
            (3.0, "a verification", self.verify),
        ]
        if early:
            choices.append((2.0, "the join is killed", self._kill_join))
        (event,) = self._random.choices(choices, [weight for weight, _, _ in choices])
        _, name, run = event
        self._world.said(name)
        run()
        self.done[name] = self.done.get(name, 0) + 1

    def verify(self) -> None:
        """Compare log, table and index with the databases while they change."""
        for one in self._world.verdicts():
            if one.get("outcome", "different") == "different":
                self.different.append(str(one))

    def _kill_process(self) -> None:
        self._kill([pid for pid in children(self._world.pid) if _JOIN not in command_of(pid)])

    def _kill_join(self) -> None:
        self._kill([pid for pid in children(self._world.pid) if _JOIN in command_of(pid)])

    def _kill(self, processes: Sequence[int]) -> None:
        if not processes:
            self._world.said("  it is not there")
            return
        pid = self._random.choice(processes)
        self._world.said(f"  {command_of(pid)[-80:]}")
        os.kill(pid, signal.SIGKILL)

    def _kill_server(self) -> None:
        server = self._random.choice(_SERVERS)
        self._world.said(f"  {server}")
        self._world.stack.kill(server)
        self._world.stack.up()

    def _alter(self) -> None:
        self._added += 1
        added, former = f"soak_{self._added}", f"soak_{self._added - 1}"
        self._world.sql("shop", f"ALTER TABLE shop.orders ADD COLUMN {added} INT NULL DEFAULT {self._added}")
        if self._added > 1:
            self._world.sql("shop", f"ALTER TABLE shop.orders DROP COLUMN {former}")

    def _snapshot(self) -> None:
        table = self._random.choice(["shop.orders", "shop.products", "crm.customers"])
        self._world.command("snapshot", str(self._world.file), table, "--follow")
