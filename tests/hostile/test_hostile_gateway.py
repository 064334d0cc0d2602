"""With a compromised gateway, nothing outside the agent's policy leaves the host.

A real agent captures a real server for a gateway that sends false configurations, conditions, signals, histories and
checkpoints. Every byte that the gateway receives is searched for the secrets of masked columns, ignored columns, other
tables and statements. A row that was found by a condition on a hidden column also reveals a value.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
import structlog

from tests.hostile.guarded_database import ACCEPTED, GuardedDatabase, guarded
from tests.hostile.histories import doctored
from tests.hostile.hostile_gateway import Lies, wait_until
from tests.hostile.lies import comparing_condition, odd_signal, signal
from tests.ingest.binlog.binlog_servers import Server, start

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
BATCH = 40  # signals of one session
LONGEST = 15.0  # seconds of a session, on a busy machine
_REFRESH = 300.0  # seconds after which a new checkpoint is taken, so that sessions do not read old log again
FLAVOURS = ("mysql9", "maria10", "maria11")


@pytest.fixture(scope="module")
def database(mysql80: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedDatabase]:
    quiet()
    with guarded(mysql80, tmp_path_factory.mktemp("fleet")) as found:
        yield found


def quiet() -> None:
    """Drop log lines: a false checkpoint causes a traceback, which costs more time than the case itself."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def try_configuration(database: GuardedDatabase, random: Random) -> int:
    """Assign a false configuration. It is refused, or captures only what the policy allows."""
    name, spec = database.name(), database.configuration(random)
    lies = database.gateway.assign(name, spec, key=database.key)
    wait_until(lambda: lies.ended or lies.commits >= 2, LONGEST)
    database.answered["configurations"] += bool(lies.reports)  # most are refused
    database.end(name, spec)
    return 1


def try_signals(database: GuardedDatabase, random: Random) -> int:
    """Send signals to a session: those that read hidden columns, or others."""
    kind, name = random.randrange(3), database.name()
    made = [odd_signal(random) if kind == 2 else signal(random, reads_hidden=kind == 0) for _ in range(BATCH)]
    signals = database.renamed(made)
    lies = Lies(recovered=database.honest(name), signals=[[one] for one in signals])
    database.gateway.assign(name, database.base, lies, key=database.key)
    wait_until(lambda: lies.failed or not lies.signals, 4 * LONGEST)  # after a wrong condition, the next session
    commits = lies.commits
    wait_until(lambda: lies.ended or lies.commits >= commits + 2, LONGEST)  # a snapshot that the last one starts
    read = BATCH - len(lies.signals)
    database.answered["signals"] += read > 0 and lies.commits > 0
    database.end(name, signals, no_rows=kind == 0)
    return read


def try_history(database: GuardedDatabase, random: Random) -> int:
    """Let a session resume from a false history and checkpoint."""
    name = database.name()
    found = doctored(random, database.honest(name))
    lies = Lies(recovered=found, history=found.get("history") or [], found=[(b'{"id":1}', b'{"after":{"id":1}}')])
    database.gateway.assign(name, database.base, lies, key=database.key)
    wait_until(lambda: lies.ended or lies.commits >= 2, LONGEST)
    database.answered["histories"] += lies.commits > 0
    database.end(name, found)
    return 1


def try_conditions(database: GuardedDatabase, random: Random) -> int:
    """Ask for rows by hidden columns, as a snapshot does, on the server itself."""
    for _ in range(BATCH):
        table = random.choice(("customers", "accounts"))
        database.ask(table, comparing_condition(random, table))
    return BATCH


TRIES: dict[str, Callable[[GuardedDatabase, Random], int]] = {
    "configurations": try_configuration, "conditions": try_conditions, "signals": try_signals, "histories": try_history,
}  # fmt: skip


def attack(database: GuardedDatabase, cases: dict[str, int], seed: int, workers: int = 8) -> dict[str, int]:
    """Try as many cases of each kind, and return how many were tried. Stops at the first leak."""
    tried, lock, refreshed = dict.fromkeys(cases, 0), threading.Lock(), [time.monotonic()]
    database.capture_honestly()

    def work(worker: int) -> None:
        random = Random(f"{seed}/{worker}")
        while not database.leaks:
            with lock:
                kinds = [kind for kind, count in cases.items() if tried[kind] < count]
                if not kinds:
                    return
                if time.monotonic() - refreshed[0] > _REFRESH:
                    refreshed[0] = time.monotonic()
                    print(tried, f"{database.received} bytes", flush=True)
                    database.capture_honestly()
                kind = random.choice(kinds)
                counted = BATCH if kind in ("conditions", "signals") else 1
                tried[kind] += counted
            done = TRIES[kind](database, random) - counted
            with lock:
                tried[kind] += done

    with ThreadPoolExecutor(workers) as pool:
        for one in [pool.submit(work, worker) for worker in range(workers)]:
            one.result()
    return tried


def checked(database: GuardedDatabase, tried: dict[str, int]) -> None:
    """Fail if anything leaked, or if the attack did not reach the database at all."""
    print(
        database.answered,
        tried,
        f"{database.received} bytes received, {database.public} public values, {database.rows} rows by SELECT",
    )
    assert not database.leaks, database.leaks[:3]
    assert database.public > 100, "public values must arrive, or the test proves nothing"
    assert database.rows > 10, "snapshots must run"
    for kind in ("configurations", "signals", "histories"):
        assert database.answered[kind] > 0, f"no session answered to {kind}, so they attacked nothing"


def test_nothing_outside_the_policy_leaves(database: GuardedDatabase) -> None:
    """A few hundred cases; `make matrix` tries 10,000."""
    seed = int(os.environ.get("TAILORBIRD_HOSTILE_SEED", "35"))
    checked(
        database, attack(database, {"configurations": 100, "conditions": 400, "signals": 120, "histories": 24}, seed)
    )


@pytest.mark.matrix
@pytest.mark.timeout(7200)
def test_nothing_outside_a_policy_of_exceptions_leaves(mysql80: Server, tmp_path: Path) -> None:
    """A thousand cases under `filter_policy: accept`. For each table a short test is in test_hidden_columns."""
    quiet()
    with guarded(mysql80, tmp_path, ACCEPTED) as found:
        checked(found, attack(found, {"configurations": 300, "conditions": 400, "signals": 240, "histories": 60}, 37))


@pytest.mark.matrix
@pytest.mark.timeout(7200)
def test_ten_thousand_cases(database: GuardedDatabase) -> None:
    """The same with 10,000 cases."""
    seed = int(os.environ.get("TAILORBIRD_HOSTILE_SEED", "3535"))
    checked(
        database,
        attack(database, {"configurations": 4000, "conditions": 3500, "signals": 1600, "histories": 900}, seed),
    )


@pytest.mark.matrix
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_other_servers(flavour: str, tmp_path: Path) -> None:
    """A few hundred cases on the other servers."""
    quiet()
    server = start(flavour, tmp_path / "server", "--max-connections=2000")
    try:
        with guarded(server, tmp_path) as found:
            checked(
                found, attack(found, {"configurations": 100, "conditions": 400, "signals": 120, "histories": 24}, 36)
            )
    finally:
        server.stop()
