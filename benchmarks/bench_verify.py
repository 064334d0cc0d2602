"""Compare the cost of `verify --stage log` for a table with one query that digests the table with CRC32.

    make bench-verify
    make bench-verify ARGS="--scale 0.1 --json"

The benchmark starts its own MySQL 8.0 and Kafka and captures a million rows of eight columns; the ledger follows. It
alternates between the comparison of all rows and `SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS('#', …)))` over the same
columns. Then it changes ten rows without the log and a thousand with it. Then the ledger reads the table's changes
from the beginning, and follows 500 changes a second. Seconds are wall-clock time; CPU time (of the server and this
process) is printed as well, because other work on the machine lengthens the first. Exit code 1: a figure misses its
target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql

from benchmarks.capture.proc_captures import WatchedProcess, our_command, running
from benchmarks.decode.proc_peers import load, machine
from benchmarks.ending import end
from benchmarks.harness import report, warn_if_busy
from benchmarks.page import write_page
from benchmarks.verify_page import MUST, document, misses
from cdc.model.artefacts import cache_folder
from cdc.model.errors import Fatal, Retriable, TailorbirdError
from cdc.process.file_topology import home, load_topology
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import CAPTURE_LOGIN, LOAD_LOGIN, Ports, StackSettings
from tailorbird.verify.findings import Verdict
from tailorbird.verify.log.run_topics import verify_log
from tailorbird.verify.log.topic_comparison import LogStageOptions
from tailorbird.verify.request import LAST

ROWS, ROUNDS, CHANGED, FAULTS, RATE = 1_000_000, 3, 1000, 10, 500
COLUMNS = "id, customer_id, status, amount, created_at, quantity, note, paid"
TABLE = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer_id INT NOT NULL, status VARCHAR(20) NOT NULL,"
    " amount DECIMAL(12,2) NOT NULL, created_at DATETIME(3) NOT NULL, quantity INT, note VARCHAR(80), paid TINYINT)"
)
FILL = (
    "INSERT INTO orders WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {rows}) SELECT i,"
    " i * 7919 % 50000, ELT(1 + i % 4, 'new', 'paid', 'shipped', 'returned'), i % 100000 / 7, '2024-01-01' + INTERVAL i"
    " SECOND, IF(i % 10 = 0, NULL, i % 13), IF(i % 3 = 0, NULL, CONCAT('a note nümber ', i)), i % 2 FROM s"
)


class Bench:
    """The benchmark with its servers, its table and its capture."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.rows, self.port, self.folder = max(1000, round(ROWS * options.scale)), options.port, folder
        self.file = folder / "bench.yml"
        self.file.write_text(
            f"name: bench_verify\nlog: {{bootstrap_servers: '127.0.0.1:{self.port + 1}'}}\nsources:\n"
            f"  bench: {{type: mysql, hostname: 127.0.0.1, port: {self.port}, username: {CAPTURE_LOGIN.user}, "
            f"password: {CAPTURE_LOGIN.password}, database: shop, tables: [orders], server_id: 9507, "
            f"ssl_mode: disabled}}\n"
            "tables:\n  t: {query: SELECT o.id FROM bench.orders o, row_key: [id]}\n"
        )
        os.environ["TAILORBIRD_HOME"] = str(folder / "home")

    def run(self) -> dict[str, Any]:
        """Run all measurements and return their figures."""
        with self.cursor() as cursor:
            for statement in ("CREATE DATABASE shop DEFAULT CHARSET utf8mb4", "USE shop", TABLE):
                cursor.execute(statement)
            cursor.execute(f"SET SESSION cte_max_recursion_depth = {2 * self.rows}")
            report(f"inserting {self.rows:,} rows")
            cursor.execute(FILL.format(rows=self.rows))
            cursor.execute("ANALYZE TABLE orders")
        with running("capture", our_command(self.file), self.folder / "capture.log") as capture:
            found = self._compare_in_turns(capture)
            found |= self._faults()
            found |= self._changes()
            found |= self._ledger()
        return found

    @contextmanager
    def cursor(self) -> Iterator[pymysql.cursors.Cursor]:
        """Yield a cursor of the user that writes the rows."""
        login = LOAD_LOGIN
        with (
            pymysql.connect(
                host="127.0.0.1", port=self.port, user=login.user, password=login.password, autocommit=True,
                charset="utf8mb4",
            ) as connection,
            connection.cursor() as cursor,
        ):  # fmt: skip
            yield cursor

    def verdict(self, since: str = "") -> Verdict:
        """Return the verdict of `verify` for the table."""
        (found,) = verify_log(load_topology(str(self.file)), None, LogStageOptions(since=since))
        return found

    def equal(self, capture: WatchedProcess) -> None:
        """Wait until all rows are captured and in the ledger."""
        deadline = time.monotonic() + 60 + self.rows / 2000
        while True:
            capture.alive()
            try:
                found = str(self.verdict().outcome)
            except (Fatal, Retriable) as error:  # no topic exists yet
                found = str(error)
            if found == "equal":
                return
            if time.monotonic() > deadline:
                raise TailorbirdError(f"{self.file}: {found}")
            time.sleep(1)

    def _compare_in_turns(self, capture: WatchedProcess) -> dict[str, Any]:
        report("capturing the rows; the ledger reads them")
        self.equal(capture)
        ours, theirs = list[tuple[float, float]](), list[tuple[float, float]]()
        for _ in range(ROUNDS):
            ours.append(self._timed(lambda: self.verdict()))
            theirs.append(self._timed(self._peer))
        (wall, processor), (peer_wall, peer_processor) = (
            tuple(map(min, zip(*one, strict=True))) for one in (ours, theirs)
        )
        return {
            "rows": self.rows,
            "verify_s": wall,
            "peer_s": peer_wall,
            "ratio": wall / peer_wall,
            "verify_processor_s": processor,
            "peer_processor_s": peer_processor,
            "processor_ratio": processor / peer_processor,
        }

    def _peer(self) -> None:
        with self.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS('#', {COLUMNS}))) FROM shop.orders")

    def _timed(self, do: Callable[[], object]) -> tuple[float, float]:
        """Run a function; return its wall-clock seconds and the CPU seconds of the server and this process."""
        server, own, began = self._server(), time.process_time(), time.monotonic()
        do()
        wall = time.monotonic() - began
        return wall, self._server() - server + time.process_time() - own

    def _server(self) -> float:
        with self.cursor() as cursor:
            cursor.execute("SELECT @@datadir, @@pid_file")
            ((folder, file),) = cursor.fetchall()
        pid = (Path(folder) / file).read_text().strip()
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def _faults(self) -> dict[str, Any]:
        at = [1 + number * (self.rows // FAULTS) for number in range(FAULTS)]
        self._hidden(f"UPDATE shop.orders SET amount = amount + 0.01 WHERE id IN ({', '.join(map(str, at))})")
        found = self.verdict()
        self._hidden(f"UPDATE shop.orders SET amount = amount - 0.01 WHERE id IN ({', '.join(map(str, at))})")
        if found.differing != FAULTS:
            raise TailorbirdError(f"{FAULTS} rows differ, but verify found {found.differing}")
        return {"rows_read": found.read, "rows_read_percent": 100 * found.read / self.rows}

    def _hidden(self, statement: str) -> None:
        with self.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute(statement)

    def _changes(self) -> dict[str, Any]:
        if (before := self.verdict()).outcome != "equal":
            raise TailorbirdError(f"not equal: {before}")
        with self.cursor() as cursor:
            for number in range(CHANGED):
                cursor.execute("UPDATE shop.orders SET paid = 1 - paid WHERE id = %s", (1 + number * 911 % self.rows,))
        found, seconds = None, 0.0
        while found is None or found.rows < min(CHANGED, self.rows):  # the capture may not have read all of them yet
            began = time.monotonic()
            found = self.verdict(LAST if found is None else before.cut.removeprefix("GTIDs "))
            seconds = time.monotonic() - began
        if found.outcome != "equal":
            raise TailorbirdError(f"not equal: {found}")
        return {"changed": found.rows, "changed_since_s": seconds}

    def _ledger(self) -> dict[str, Any]:
        report("changing rows for the ledger to read")
        with self.cursor() as cursor:
            for step in range(2):
                cursor.execute(f"UPDATE shop.orders SET quantity = {step + 20}")
        self.verdict()
        for file in (home() / "ledger" / "bench_verify").iterdir():
            file.unlink()
        command = [sys.executable, "-m", "tailorbird", "ledger", str(self.file)]
        with running("ledger", [*command, "--until-end"], self.folder / "ledger.log") as ledger:
            while "event=ended" not in (said := (self.folder / "ledger.log").read_text()):
                if "event=began" not in said:
                    ledger.alive()
                time.sleep(0.2)
        reported = dict(part.partition("=")[::2] for part in said[said.index("event=ended") :].split())
        with running("ledger", command, self.folder / "ledger-idle.log") as ledger, self._traffic():
            share = ledger.idle(5.0, 20.0)
        return {
            "ledger_changes": int(reported["records"]),
            "ledger_changes_per_s": float(reported["a_second"]),
            "ledger_changes_per_processor_s": float(reported["a_processor_second"]),
            "ledger_percent_of_a_core_at_500_per_s": share,
        }

    @contextmanager
    def _traffic(self) -> Iterator[None]:
        """Write `RATE` changes a second until the block ends."""
        done = threading.Event()

        def run() -> None:
            began, number = time.monotonic(), 0
            with self.cursor() as cursor:
                while not done.wait(0.01):
                    while number < (time.monotonic() - began) * RATE:
                        number += 1
                        at = number * 37 % self.rows
                        cursor.execute("UPDATE shop.orders SET paid = 1 - paid WHERE id = %s", (at,))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-verify", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of a million rows (default 1)")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--port", type=int, default=13700, help="port of the private MySQL; Kafka uses the next two")
    parser.add_argument("--output", type=Path, help="also write Markdown, e.g. docs/results/verify.md")
    options = parser.parse_args(arguments)
    warn_if_busy()
    busy = load()
    cache, port = cache_folder(os.environ), options.port
    stack_home = cache / "bench-verify" / "stack"
    ports = Ports(mysql_shop=port, kafka=port + 1, kafka_controller=port + 2)
    stack = Stack(StackSettings(home=stack_home, cache=cache, ports=ports))
    stack.down(purge=True)
    try:
        stack.up(services=["mysql-shop", "kafka"])
        folder = stack_home / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        found = Bench(options, folder).run()
    except TailorbirdError as error:
        print(f"bench-verify: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        stack.down(purge=True)
    if options.output:
        write_page(options.output, document(found, machine(), busy))
    return reported(found, as_json=options.json)


def reported(found: dict[str, Any], *, as_json: bool) -> int:
    """Print the figures; return 1 if one misses its target."""
    if as_json:
        print(json.dumps({**found, "machine": machine()}))
    else:
        print(machine())
    missed = 0
    for name, value in found.items():
        how, most = MUST.get(name, ("", 0.0))
        missed += misses(name, value)
        must = f"  (must be {how} {most:g})" if how else ""
        if not as_json:
            print(f"{name:32} {value:,.2f}{must}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(end(main))
