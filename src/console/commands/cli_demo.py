"""`tailorbird demo`: the whole pipeline of topologies/shop.yml on live traffic, and the proof that it was right."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cdc.words.errors import UsageError

_SAMPLES_PER_SECOND = 6.0
_WARM_UP_ROUNDS = 10  # at most
_WARM = 2.0  # seconds until the last change of a round is visible
_PLAIN_LINE_EVERY = 10.0
_WITHHELD_TOLD = 0.05


def demo(
    duration: str = typer.Option("", "--for", metavar="60s", help="Stop the traffic after this time; else Ctrl-C."),
    as_json: bool = typer.Option(False, "--json", help="Print the outcome as one JSON object on the last line."),
    rate: float = typer.Option(110.0, help="Source changes per second."),
    customers: int = typer.Option(5_000, min=1, help="Customers of the catalogue."),
    products: int = typer.Option(2_000, min=1, help="Products of the catalogue."),
    orders: int = typer.Option(50_000, min=1, help="Orders of the catalogue."),
    seed: int = typer.Option(7, help="Seed of catalogue and traffic."),
    page_port: int = typer.Option(8080, "--port", help="Port of the page."),
    file: str = typer.Option("", "--topology", help="Another topology of the same tables; default: the shop's."),
    keep: bool = typer.Option(False, "--keep", help="Leave the local stack running at the end."),
) -> None:
    """Start the local stack and every process of topologies/shop.yml, load two databases, run live traffic, compare.

    Exit 0 only if HBase and Solr equal, row by row and field by field, what both databases answer to the same query.

    Example: tailorbird demo --for 60s --json
    """
    console = Console(stderr=True)
    for_seconds = _seconds(duration) if duration else None
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as closing:
        outcome, equal = _run(
            console,
            closing,
            stop,
            for_seconds=for_seconds,
            rate=rate,
            sizes={"customers": customers, "products": products, "orders": orders},
            seed=seed,
            page_port=page_port,
            file=file or _shop_topology(),
            keep=keep,
        )
    if as_json:
        typer.echo(json.dumps(outcome))
    raise typer.Exit(0 if equal else 1)


def _run(
    console: Console,
    closing: ExitStack,
    stop: threading.Event,
    *,
    for_seconds: float | None,
    rate: float,
    sizes: dict[str, int],
    seed: int,
    page_port: int,
    file: str,
    keep: bool,
) -> tuple[dict[str, Any], bool]:
    # imported here so that `tailorbird --help` stays quick
    from cdc.process.file_topology import home, load_topology
    from console.commands.cli_apply import provision
    from console.commands.cli_demo_steps import Sampler, counts, traffic, traffic_beside, verdict, wait_until_quiet
    from console.demo.mysql_demo import MySqlShop
    from console.demo.shop import Shop
    from console.demo.solr_freshness import FreshnessMeter, percentile
    from console.pipeline.proc_pipeline import Pipeline
    from console.probes.proc_steal import Stolen
    from console.stack.bars import telling
    from console.stack.proc_stack import Stack
    from console.stack.settings import LOAD_LOGIN, StackSettings
    from indexer.solr.solr_http import reading_session

    began = time.monotonic()
    settings = StackSettings.from_environ(os.environ, Path.cwd())
    os.environ.update(settings.environ())
    stack = Stack(settings)
    found_running = any(service.pid for service in stack.status())
    if not keep and not found_running:
        closing.callback(stack.down)
    with telling(console) as progress:
        stack.fetch(progress)
        stack.up(progress)
    topology = load_topology(file)
    index = next(iter(topology.indexes.values()))
    generator = Shop(random=Random(seed))
    shop = MySqlShop(topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
    closing.callback(shop.close)
    shop.prepare()
    if shop.recall(generator):
        console.print(f"the shop is there already: {len(generator.orders):,} orders; going on with it")
    else:
        with _bar(console) as bar:
            task = bar.add_task("loading both databases", total=sum(sizes.values()))
            batches = generator.catalogue(**sizes, now_ms=int(time.time() * 1000))
            shop.load(batches, lambda rows: bar.advance(task, rows))
    list(provision(topology))
    pipeline = closing.enter_context(Pipeline(topology, home=home(), page_port=page_port))
    # as in life, nobody holds still for the first snapshot: it and the join begin beside live changes
    with traffic_beside(generator, shop, rate=rate) as changes:
        pipeline.start(lambda part: console.print(f"started {part.name}"))
        with _bar(console) as bar:
            task = bar.add_task("the first snapshot, beside live traffic", total=len(generator.orders))
            while (found := counts(pipeline))["indexed"] == 0 and not stop.wait(0.3):
                pipeline.check()
                bar.update(task, completed=min(found["captured"], len(generator.orders)))
        begun = changes()
    console.print(f"{begun:,} changes were made beside the first snapshot")
    with _bar(console) as bar:
        task = bar.add_task("database → Kafka → HBase → Solr", total=len(generator.orders))
        wait_until_quiet(
            topology,
            shop,
            pipeline,
            lambda why: bar.update(task, completed=counts(pipeline)["indexed"], description=why),
        )
    with console.status("warming up"):

        def a_round() -> float:
            for change in islice(traffic(generator, rate=rate, until=stop.is_set), round(rate)):
                shop.apply(change)
            applied = time.monotonic()
            wait_until_quiet(topology, shop, pipeline, lambda why: None)
            return time.monotonic() - applied

        rounds = _warm_up(a_round)
    ready = time.monotonic() - began
    console.print(f"page: http://127.0.0.1:{page_port}/   (ready after {ready:.0f} s, warm after {rounds} rounds)")

    session = reading_session(topology.solr)
    freshness = FreshnessMeter(f"{topology.solr.url}/{index.collection}", key="id", version="revision", session=session)
    freshness.start()
    closing.callback(freshness.stop)
    sampler = Sampler(freshness, per_second=_SAMPLES_PER_SECOND, random=Random(seed + 1))
    ends = time.monotonic() + for_seconds if for_seconds else None
    kinds: dict[str, int] = {}
    stolen = Stolen()
    with console.status("") if console.is_terminal else nullcontext() as line:
        shown, said = 0.0, time.monotonic()
        for change in traffic(
            generator, rate=rate, until=lambda: stop.is_set() or (ends is not None and time.monotonic() >= ends)
        ):
            sampler.committed(change, shop.apply(change))
            kinds[change.kind] = kinds.get(change.kind, 0) + 1
            if time.monotonic() - shown >= 1.0:
                shown = time.monotonic()
                pipeline.check()
                text = _line({"changes": sum(kinds.values()), **counts(pipeline)}, freshness.samples_ms(), page_port)
                if line is not None:
                    line.update(text)
                elif shown - said >= _PLAIN_LINE_EVERY:
                    said = shown
                    console.print(text, soft_wrap=True)
    console.print("traffic: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items())))
    with console.status("waiting until every change is visible"):
        wait_until_quiet(topology, shop, pipeline, lambda why: None)
    totals, withheld = counts(pipeline), stolen.share()
    with console.status("comparing databases, HBase and Solr, row by row and field by field"):
        result = verdict(topology, index.name)
    samples = freshness.samples_ms()
    for name, difference in (("HBase", result.hbase), ("Solr", result.solr)):
        console.print(
            f"{name}: {result.rows:,} rows expected, {difference.missing} missing, {difference.extra} extra,"
            f" {difference.different} different"
        )
        for example in difference.examples:
            console.print(f"  {example}", markup=False)
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    console.print(f"freshness, COMMIT → visible in Solr: p50 {p50} ms, p99 {p99} ms over {len(samples)} samples")
    if withheld >= _WITHHELD_TOLD:
        console.print(f"the host of this machine withheld {withheld:.0%} of its processors meanwhile")
    outcome = {
        **totals,
        "hbase": result.hbase.counts(),
        "solr": result.solr.counts(),
        "freshness_ms": {"p50": p50, "p99": p99},
        "samples": len(samples),
        "withheld": round(withheld, 3),
        "beside_snapshot": begun,
        "warm_up_rounds": rounds,
        "seconds": round(time.monotonic() - began),
    }
    return outcome, result.equal


def _warm_up(a_round: Callable[[], float]) -> int:
    """Rounds of traffic until two in a row are visible soon, at least three; how many it took.

    Every JVM compiles and Spark forks on its first batches; what a reader would feel begins after them.
    """
    soon = 0
    for number in range(1, _WARM_UP_ROUNDS + 1):
        soon = soon + 1 if a_round() < _WARM else 0
        if number >= 3 and soon >= 2:
            return number
    return _WARM_UP_ROUNDS


def _line(numbers: dict[str, int], samples: list[int], page_port: int) -> str:
    from console.demo.solr_freshness import percentile

    told = " · ".join(f"{name} {number:,}" for name, number in numbers.items())
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    return f"{told} · freshness p50 {p50} ms, p99 {p99} ms · http://127.0.0.1:{page_port}/"


def _shop_topology() -> str:
    """The checkout's topology; installed apart from one, that of the working folder."""
    ours = Path(__file__).parents[3] / "topologies" / "shop.yml"
    return str(ours) if ours.exists() else "topologies/shop.yml"


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", text)
    if match is None:
        raise UsageError(f"--for {text}: not a duration", "write e.g. --for 60s or --for 5m")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
