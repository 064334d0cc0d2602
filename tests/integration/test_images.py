"""The images run the demo's stages: as their own user, without privileges, with a read-only root.

`make images` builds them; `make check-images` runs this test, too. The commands are those of docker-compose.yml. Each
container has a state folder of its own, as in Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from cdc.process.file_topology import load_topology, local_ports
from cdc.topology.topology import Topology
from tailorbird.cli.cli_demo_verdict import verdicts
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import SCHEMAS, Shop, ShopStatement, ShopTransaction
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tests.images import built, config_of, mounted
from tests.support.contained import Container, writable_folder
from tests.support.images_offer import TARGETS
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.matrix,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        shutil.which("buildah") is None or os.geteuid() != 0, reason="needs root, buildah and `make images`"
    ),
]
ROOT = Path(__file__).parents[2]
FILE = "/etc/tailorbird/shop.yml"
READS_VERSIONS = ("join", "index", "dashboard", "api")


class Pipeline:
    """The containers of docker-compose.yml's profile `pipeline` over one topology."""

    def __init__(self, roots: dict[str, Path], folder: Path, home: Path) -> None:
        self.roots, self.folder, self.home = roots, folder, home
        self.configuration = folder / "etc"
        self.configuration.mkdir()
        text = (ROOT / "topologies" / "shop.yml").read_text()
        self.file = self.configuration / "shop.yml"
        self.file.write_text(text.replace("name: shop\n", f"name: images_{time.time_ns()}\n"))
        services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        self.services = {name: one for name, one in services.items() if one.get("profiles") == ["pipeline"]}
        self.ports = {"8080": str(free_port()), "7450": str(free_port())}  # of the dashboard and the API
        self.running: dict[str, Container] = {}

    def container(self, name: str, target: str = "", **environ: str) -> Container:
        """Return a container with a service's state, of its image or `target`, before a process starts in it."""
        target = target or self.services[name]["build"]["target"]
        config = config_of(target)
        state = self.folder / "state" / name
        if not state.exists():
            writable_folder(state)
        own = dict(word.split("=", 1) for word in config["Env"])
        ports = {f"TAILORBIRD_PORT_{key.upper()}": str(port) for key, port in local_ports(self.home).items()}
        volumes = {
            "/etc/tailorbird": (self.configuration, False),
            "/var/lib/tailorbird": (state, True),
            str(self.home): (self.home, True),  # where Solr reads the configurations of collections
        }
        return Container(self.roots[target], {**own, **ports, **environ}, volumes, user=config["User"])

    def command(self, name: str) -> list[str]:
        """Return the entry point of a service's image with the service's arguments, on a free port."""
        service = self.services[name]
        words = [self.ports.get(word, word) for word in service["command"]]
        return [*config_of(service["build"]["target"])["Entrypoint"], *words]

    def run(self, name: str, *words: str) -> str:
        """Run a command of the console's image with the state of a service, by default the service's own command.
        Return the output."""
        command = ["tailorbird", *words] if words else self.command(name)
        done = self.container(name, "console").run(command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def start(self, name: str) -> None:
        """Start a service and wait until its image's health check succeeds. Print how long that took."""
        environ = {key: str(value) for key, value in self.services[name]["environment"].items()}
        if "TAILORBIRD_METRICS_PORT" in environ:
            environ["TAILORBIRD_METRICS_PORT"] = str(free_port())
        else:
            url = environ["TAILORBIRD_HEALTH_URL"]
            environ["TAILORBIRD_HEALTH_URL"] = re.sub(r"\d{4}(?=/)", lambda found: self.ports[found[0]], url)
        self.running[name] = self.container(name, **environ)
        begun = time.monotonic()
        self.running[name].start(self.command(name), self.folder / f"{name}.log")
        self.until(partial(self.healthy, name), f"{name} is not healthy")
        print(f"{name}: healthy after {time.monotonic() - begun:.1f} s")

    def healthy(self, name: str) -> bool:
        """Return whether the image's health check succeeds."""
        process = self.running[name].process
        assert process is not None
        assert process.poll() is None, f"{name} ended"
        check = config_of(self.services[name]["build"]["target"])["Healthcheck"]["Test"]
        assert check[0] == "CMD"
        return self.running[name].run(check[1:], 20).returncode == 0

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until a condition holds; else raise AssertionError with the processes' logs."""
        try:
            wait_for(holds, what, 240)
        except AssertionError as error:
            raise AssertionError(f"{error}{self.logs()}") from error

    def logs(self) -> str:
        """Return the last lines of every process."""
        return "".join(f"\n{log.name}:\n{log.read_text()[-1500:]}" for log in self.folder.glob("*.log"))


@pytest.fixture
def roots() -> Iterator[dict[str, Path]]:
    """The root file system of each image."""
    absent = [target for target in TARGETS if not built(target)]
    if absent:
        pytest.skip(f"make images: not built: {', '.join(absent)}")
    with ExitStack() as closing:
        yield {target: closing.enter_context(mounted(target)) for target in TARGETS}


@pytest.fixture
def pipeline(roots: dict[str, Path], stack: Stack, tmp_path: Path) -> Iterator[Pipeline]:
    tmp_path.chmod(0o755)
    data = stack.settings.home / "data"
    for folder in (stack.settings.home, data, data / "solr", *(data / "solr").rglob("*")):
        if folder.is_dir():
            folder.chmod(0o1777)  # as docker-compose.yml does with Solr's home
    made = Pipeline(roots, tmp_path, stack.settings.home)
    yield made
    for one in made.running.values():
        one.kill()


@pytest.fixture
def shop(pipeline: Pipeline) -> Iterator[tuple[Topology, MySqlShop, Shop]]:
    """The demo's databases, with few rows."""
    topology = load_topology(str(pipeline.file))
    servers = MySqlShop(topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
    for server in SCHEMAS:
        gone = ShopStatement(server=server, sql=f"DROP DATABASE IF EXISTS {server}", values=())
        servers.apply(ShopTransaction(kind="order removed", statement=gone))
    servers.prepare()
    generator = Shop(random=Random(5))
    now = int(time.time() * 1000)
    servers.load(generator.catalogue(customers=200, products=100, orders=1500, now_ms=now), lambda rows: None)
    yield topology, servers, generator
    servers.close()


@contextmanager
def traffic(servers: MySqlShop, generator: Shop) -> Iterator[list[float]]:
    """Context manager: changes at the databases, about 50 per second, while the block runs. Yields their times."""
    ending, applied = threading.Event(), list[float]()

    def change() -> None:
        while not ending.wait(0.02):
            applied.append(servers.apply(generator.traffic(int(time.time() * 1000))))

    with ThreadPoolExecutor(1, "traffic") as thread:
        changing = thread.submit(change)
        try:
            yield applied
        finally:
            ending.set()
        changing.result()


def test_the_stages_of_the_demo_run_in_containers(pipeline: Pipeline, shop: tuple[Topology, MySqlShop, Shop]) -> None:
    """Log, table and index equal the databases after changes from before, during and after the start. Every health
    check succeeds, the page answers, and SIGTERM ends each process cleanly."""
    topology, servers, generator = shop
    with traffic(servers, generator) as applied:
        pipeline.run("apply")
        processes = [name for name in pipeline.services if name != "apply"]
        assert {pipeline.services[name]["build"]["target"] for name in processes} == set(TARGETS)
        for name in processes:
            if name in READS_VERSIONS:
                assert "version 1 serves" in pipeline.run(name, "versions", FILE)
            pipeline.start(name)
        running = len(applied)
        pipeline.until(lambda: len(applied) > running + 300, "the traffic does not continue")
    pipeline.until(lambda: same_rows(topology), "HBase or Solr differ from the databases")
    printed = [json.loads(line) for line in pipeline.run("apply", "verify", FILE, "--json").splitlines()]
    found = [one for one in printed if one["kind"] == "verdict"]
    assert {one["stage"]: one["outcome"] for one in found} == dict.fromkeys(("log", "table", "index"), "equal")
    assert {one["outcome"] for one in found} == {"equal"}
    with urllib.request.urlopen(f"http://127.0.0.1:{pipeline.ports['8080']}/", timeout=20) as answer:
        assert b"Sales" in answer.read()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://127.0.0.1:{pipeline.ports['7450']}/v1/topologies", timeout=20)
    ended: dict[str, Any] = {name: pipeline.running[name].stop(120) for name in processes}
    assert ended == dict.fromkeys(processes, 0), pipeline.logs()


def same_rows(topology: Topology) -> bool:
    """Return whether HBase and Solr equal the query over the databases."""
    found = verdicts(topology)["orders_wide"]
    return found.rows > 1_000 and found.equal
