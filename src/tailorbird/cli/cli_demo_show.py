"""The demo, step by step: servers, databases, start under traffic, warm-up, measured traffic, comparison."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cdc.process.file_topology import home, load_topology, local_ports
from cdc.topology.topology import Index, Topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.cli.cli_demo_fleet import DemoFleet
from tailorbird.cli.cli_demo_steps import (
    Sampler,
    background_traffic,
    counts,
    traffic,
    wait_until_quiet,
)
from tailorbird.cli.cli_demo_verdict import Proof, proved
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.pg_two_engines import TwoEngineShop, crm_of, engine_of, is_two_engines
from tailorbird.devtools.demo.proc_debezium import debezium_command
from tailorbird.devtools.demo.run_demo_index import shown_versions
from tailorbird.devtools.demo.run_freshness import FreshnessMeter, percentile
from tailorbird.devtools.demo.shop import Shop
from tailorbird.devtools.demo.warm_up import rounds_until_warm
from tailorbird.devtools.stack.bars import reporting
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.settings import LOAD_LOGIN, SERVICES, ServiceName, StackSettings
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.operate.probes.proc_steal import CpuSteal
from tailorbird.verify.compare import Difference
from tailorbird.verify.mysql_tables import read_tables

_SAMPLES_PER_SECOND = 6.0
_PLAIN_LINE_EVERY = 10.0
_WITHHELD_REPORTED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the demo. `seconds` limits the traffic (None: until Ctrl-C), `rate` is its changes per second.

    `sizes` are the numbers of rows by table. `fleet`: agents capture, through a gateway. `keep`: servers keep
    running at the end."""

    file: str
    seconds: float | None
    rate: float
    sizes: dict[str, int]
    seed: int
    page_port: int
    fleet: bool
    keep: bool


@dataclass(slots=True)
class TrafficResult:
    """Results of the live traffic: changes by kind (`kinds`), counters of the processes (`totals`), freshness
    samples.

    `withheld` is the share of processor time that the host gave to other machines."""

    kinds: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    samples_ms: list[int] = field(default_factory=list)
    withheld: float = 0.0


def show(
    options: DemoOptions, console: Console, closing: ExitStack, stop: threading.Event
) -> tuple[dict[str, Any], bool]:
    """Run the demo. Return the outcome for `--json`, and whether HBase and Solr equal the databases.

    Cleanups are registered in `closing`. The traffic ends when `stop` is set."""
    began = time.monotonic()
    settings = _servers(options, console, closing)
    topology = load_topology(options.file)
    two = _two_engines(topology, settings, console, closing) if is_two_engines(topology) else None
    one = _Demo(options, console, closing, stop, topology, two)
    beside = one.first_start()
    rounds = one.warm_up()
    ready = time.monotonic() - began
    page = f"http://127.0.0.1:{options.page_port}/"
    console.print(f"page: {page}   (ready after {ready:.0f} s, warm after {rounds} rounds)")
    live = one.live(page)
    with console.status("verify: databases, HBase and indexes, row by row and field by field"):
        proof = proved(topology, None if two is None else read_tables(two.crm))
    _report(console, proof, live)
    found = proof.found
    outcome = {
        **live.totals,
        "hbase": sum((table.hbase for table in found.values()), Difference()).counts(),
        "solr": sum((table.solr for table in found.values()), Difference()).counts(),
        "tables": {name: table.counts() for name, table in found.items()},
        "freshness_ms": {"p50": percentile(live.samples_ms, 0.5), "p99": percentile(live.samples_ms, 0.99)},
        "samples": len(live.samples_ms),
        "withheld": round(live.withheld, 3),
        "beside_snapshot": beside,
        "warm_up_rounds": rounds,
        "seconds": round(time.monotonic() - began),
    }
    return outcome, bool(found) and all(table.equal for table in found.values())


def _servers(options: DemoOptions, console: Console, closing: ExitStack) -> StackSettings:
    settings = StackSettings.from_environ(os.environ, Path.cwd(), former=local_ports(home()))
    os.environ.update(settings.environ())
    topology = load_topology(options.file)
    besides: list[ServiceName] = ["postgres"] if is_two_engines(topology) or topology.postgres else []
    if topology.solr.url == settings.addresses()["solrcloud"]:
        besides.append("solrcloud")
    if any(index.type == "opensearch" for index in topology.indexes.values()):
        besides.append("opensearch")
    stack = Stack(settings)
    if not options.keep and not any(service.pid for service in stack.status()):
        closing.callback(stack.down)
    with reporting(console) as progress:
        stack.fetch(progress)
        stack.up(progress, [*SERVICES, *besides])
    return settings


def _two_engines(topology: Topology, settings: StackSettings, console: Console, closing: ExitStack) -> TwoEngineShop:
    """Create the databases of the demo with two kinds of server, one of which Debezium captures.

    Debezium's engine starts in `first_start` and ends with the demo."""
    crm = crm_of(topology, settings.ports.mysql_crm)
    with reporting(console) as progress:
        java = find_java(settings.cache, os.environ, progress)
    with console.status("building Debezium's engine"):
        command = debezium_command(settings.cache, java)
    engine = engine_of(topology, crm, home() / "logs" / topology.name / "debezium.log", command)
    closing.callback(engine.kill)
    return TwoEngineShop(topology, crm, LOAD_LOGIN, engine)


class _Demo:
    """Two databases and the pipeline over them."""

    def __init__(
        self,
        options: DemoOptions,
        console: Console,
        closing: ExitStack,
        stop: threading.Event,
        topology: Topology,
        shop: MySqlShop | None,
    ) -> None:
        self._options, self._console, self._closing, self._stop = options, console, closing, stop
        self._topology = topology
        self.index: Index = next(iter(topology.indexes.values()))
        self._generator = Shop(random=Random(options.seed))
        self._shop = shop or MySqlShop(topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
        closing.callback(self._shop.close)
        self._fill()
        list(provision(topology))
        self._fleet = DemoFleet(topology, home()) if options.fleet else None
        captures = self._fleet.parts() if self._fleet else ()
        self._pipeline = closing.enter_context(
            Pipeline(topology, home=home(), page_port=options.page_port, captures=captures)
        )

    def _fill(self) -> None:
        shop, generator, sizes = self._shop, self._generator, self._options.sizes
        shop.prepare()
        shop.recall(generator)
        lacks = generator.lacks(**sizes)
        if not lacks:
            self._console.print(f"using {len(generator.orders):,} orders of an earlier demo")
            return
        with _bar(self._console) as bar:
            task = bar.add_task("loading the databases", total=lacks)
            batches = generator.catalogue(**sizes, now_ms=int(time.time() * 1000))
            shop.load(batches, lambda rows: bar.advance(task, rows))

    def first_start(self) -> int:
        """Start the pipeline while traffic runs. Return the number of changes made during the first snapshot."""
        pipeline, orders = self._pipeline, len(self._generator.orders)
        with background_traffic(self._generator, self._shop, rate=self._options.rate) as changes:
            self._shop.begin()
            pipeline.start(lambda part: self._console.print(f"started {part.name}"))
            if self._fleet:
                self._fleet.command()
            with _bar(self._console) as bar:
                task = bar.add_task("the first snapshot, during live traffic", total=orders)
                while (found := counts(pipeline))["indexed"] == 0 and not self._stop.wait(0.3):
                    pipeline.must_run()
                    bar.update(task, completed=min(found["captured"], orders))
            begun = changes()
        self._console.print(f"{begun:,} changes were made during the first snapshot")
        with _bar(self._console) as bar:
            task = bar.add_task("database → Kafka → HBase → index", total=orders)
            self._quiet(lambda why: bar.update(task, completed=counts(pipeline)["indexed"], description=why))
        return begun

    def warm_up(self) -> int:
        """Run rounds of traffic until changes become visible quickly. Return the number of rounds."""
        rate = self._options.rate

        def a_round() -> float:
            for change in islice(traffic(self._generator, rate=rate, until=self._stop.is_set), round(rate)):
                self._shop.apply(change)
            applied = time.monotonic()
            self._quiet()
            return time.monotonic() - applied

        with self._console.status("warming up"):
            return rounds_until_warm(a_round)

    def live(self, page: str) -> TrafficResult:
        """Run the live traffic, measure its freshness, and wait until every change is visible."""
        options, topology = self._options, self._topology
        freshness = FreshnessMeter(shown_versions(topology, self.index, key="id", version="revision"))
        freshness.start()
        self._closing.callback(freshness.stop)
        sampler = Sampler(freshness, per_second=_SAMPLES_PER_SECOND, random=Random(options.seed + 1))
        ends = time.monotonic() + options.seconds if options.seconds else None
        found, cpu_steal = TrafficResult(), CpuSteal()

        def over() -> bool:
            return self._stop.is_set() or (ends is not None and time.monotonic() >= ends)

        with _Line(self._console) as line:
            for change in traffic(self._generator, rate=options.rate, until=over):
                sampler.committed(change, self._shop.apply(change))
                found.kinds[change.kind] = found.kinds.get(change.kind, 0) + 1
                if line.is_due():
                    self._pipeline.must_run()
                    numbers = {"changes": sum(found.kinds.values()), **counts(self._pipeline)}
                    line.say(_line(numbers, freshness.samples_ms(), page))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.kinds.items()))
        self._console.print("traffic: " + kinds)
        with self._console.status("waiting until every change is visible"):
            self._quiet()
        found.totals, found.withheld = counts(self._pipeline), cpu_steal.share()
        found.samples_ms = freshness.samples_ms()
        return found

    def _quiet(self, waiting: Callable[[str], None] = lambda why: None) -> None:
        wait_until_quiet(self._topology, self._shop, self._pipeline, waiting)


class _Line:
    """A status line. A terminal updates it every second; elsewhere a new line is printed from time to time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("") if console.is_terminal else nullcontext()
        self._shown, self._said = 0.0, time.monotonic()

    def __enter__(self) -> _Line:
        self._status.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._status.__exit__(*error)

    def is_due(self) -> bool:
        """Return whether a second has passed."""
        return time.monotonic() - self._shown >= 1.0

    def say(self, text: str) -> None:
        """Show the text."""
        self._shown = time.monotonic()
        if not isinstance(self._status, nullcontext):
            self._status.update(text)
        elif self._shown - self._said >= _PLAIN_LINE_EVERY:
            self._said = self._shown
            self._console.print(text, soft_wrap=True)


def _report(console: Console, proof: Proof, live: TrafficResult) -> None:
    for line in proof.lines:
        console.print(line, markup=False, soft_wrap=True)
    for table, result in proof.found.items():
        if result.equal:
            continue
        for place, difference in (("HBase", result.hbase), ("the index", result.solr)):
            console.print(
                f"{table} in {place}: {result.rows:,} rows expected, {difference.missing} missing,"
                f" {difference.extra} extra, {difference.different} different"
            )
            for example in difference.examples:
                console.print(f"  {example}", markup=False)
    samples = live.samples_ms
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    console.print(f"freshness, COMMIT → visible to queries: p50 {p50} ms, p99 {p99} ms over {len(samples)} samples")
    if live.withheld >= _WITHHELD_REPORTED:
        console.print(f"CPU steal during the traffic: {live.withheld:.0%}")


def _line(numbers: dict[str, int], samples: list[int], page: str) -> str:
    reported = " · ".join(f"{name} {number:,}" for name, number in numbers.items())
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    return f"{reported} · freshness p50 {p50} ms, p99 {p99} ms · {page}"


def _bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
