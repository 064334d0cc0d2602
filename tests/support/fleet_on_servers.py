"""A fleet of processes over real servers: gateways, agents, the page, and an operator's command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cdc.model.errors import Retriable
from ingest.fleet.identity import FleetIdentity
from tailorbird.web.fleet.file_ca import init, issue
from tailorbird.web.fleet.http_fleet import TOKEN, FleetApi
from tests.support.commands import tailorbird
from tests.support.gateways import TENANT
from tests.support.ports import free_port


class FleetOnServers:
    """Processes of gateways and agents over one topology, and the command line of an operator."""

    def __init__(self, captured: Any, folder: Path) -> None:
        self.captured, self.folder = captured, folder
        init(folder / "authority", TENANT)
        self.streams = {name: f"127.0.0.1:{free_port()}" for name in ("g1", "g2")}
        self.apis = {name: f"127.0.0.1:{free_port()}" for name in ("g1", "g2")}
        for name in self.streams:
            issue(folder / "authority", FleetIdentity(TENANT, "gateways", name), folder / name, hosts=["127.0.0.1"])
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.token, self.ca = "", folder / "authority" / "ca.pem"

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tailorbird", *command], stdout=log, stderr=log, cwd=self.folder
            )

    def gateway(self, name: str, *more: str) -> None:
        identity, api = str(self.folder / name), self.apis[name]
        file = str(self.captured.file)
        self.start(name, "gateway", file, "--listen", self.streams[name], "--identity", identity, "--api", api, *more)

    def agent(self, name: str, policy: str, *through: str, tenant: str = TENANT) -> None:
        """Start an agent, which dials the gateways, or a proxy before them."""
        identity = self.folder / name
        if not identity.exists():
            issue(self.folder / "authority", FleetIdentity(tenant, "agents", name), identity)
        (identity / "policy.yml").write_text(policy)
        (identity / "policy.yml").chmod(0o600)
        dials = [word for address in through or self.streams.values() for word in ("--gateway", address)]
        self.start(name, "agent", *dials, "--identity", str(identity), "--policy", str(identity / "policy.yml"))

    def page(self) -> str:
        """Serve the page of g1; return its address."""
        port = free_port()
        ca = str(self.ca)
        self.start("page", "fleet", "page", "--api", self.apis["g1"], "--ca", ca, "--port", str(port))
        self.until(lambda: b"fleet page serves" in (self.folder / "page.log").read_bytes(), "the page is not served")
        return f"http://127.0.0.1:{port}/"

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        self.processes[name].send_signal(number)
        return self.processes[name].wait(60)

    def ask(self, *words: str, gateway: str = "g1", code: int = 0, ca: str = "") -> str:
        """Return the output of `tailorbird fleet`."""
        environ = {TOKEN: self.token, "TAILORBIRD_FLEET_API": self.apis[gateway]}
        done = tailorbird("fleet", *words, "--ca", ca or str(self.ca), environ=environ)
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout + done.stderr

    def json(self, *words: str, gateway: str = "g1") -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ask(*words, "--json", gateway=gateway).splitlines()]

    def api(self, path: str, gateway: str = "g1") -> Any:
        """Return the API's answer, without starting a process; None while it does not answer."""
        try:
            return FleetApi(self.apis[gateway], self.ca, self.token).ask("GET", path)
        except Retriable:
            return None

    def until(self, holds: Callable[[], object], what: str, seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"{what}{self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        return "".join(f"\n{file.name}:\n{file.read_text()[-3000:]}" for file in self.folder.glob("*.log"))

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def policy(captured: Any, alias: str = "db") -> str:
    tables = "{t: {mask: {mail: redact}}, u: {}}"
    return (
        f"dumps: true\nlabels: {{site: here}}\nconnections:\n  {alias}:\n"
        f"    hostname: 127.0.0.1\n    port: {os.environ['TAILORBIRD_PORT_MYSQL_SHOP']}\n"
        f"    username: cdc\n    password: cdc\n    databases: {{{captured.name}: {{tables: {tables}}}}}\n"
    )


def rows(captured: Any, table: str) -> dict[int, dict[str, Any]]:
    """Return a table's rows from the topic, as a reader of committed records has them; check that none is published
    twice."""
    found: dict[int, dict[str, Any]] = {}
    for event in captured.events(table):
        if event["after"] is not None:
            found[event["after"]["id"]] = event["after"]
        elif event["before"] is not None:
            found.pop(event["before"]["id"], None)
    return found


def spent(process: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Return the resident megabytes of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
