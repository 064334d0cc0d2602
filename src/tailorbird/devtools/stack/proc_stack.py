"""Start, watch and stop the servers of the local stack. Callers need only `Stack`.

stack = Stack(StackSettings.from_environ(os.environ, Path.cwd()))
stack.up(progress)          # idempotent; returns when every server answers
stack.kill("hbase")         # what chaos tests do
stack.up(progress)          # repairs it
stack.down(purge=True)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TypeVar

from cdc.model.artefacts import Bundle
from cdc.model.brokers import Brokers
from cdc.model.errors import TailorbirdError, UsageError
from cdc.model.tls import SearchServer
from cdc.process.file_topology import PORTS, local_ports
from tailorbird.devtools.stack.artefacts import BUNDLES
from tailorbird.devtools.stack.proc_fetch import fetch, fetch_bundles
from tailorbird.devtools.stack.proc_files import (
    check_space,
    explained,
    install_configsets,
    mark_home,
    purge_home,
    read_log,
    set_aside,
    write_file,
)
from tailorbird.devtools.stack.proc_table import RunningServer, holder_of, launch, mark_of, running_services
from tailorbird.devtools.stack.proc_tools import find_java, find_tools, locked
from tailorbird.devtools.stack.progress import ProgressListener, StackProgress, silent
from tailorbird.devtools.stack.remedies import remedy, reporting_lines, tail
from tailorbird.devtools.stack.service_spec import ServiceSpec, log_files
from tailorbird.devtools.stack.services import BUNDLE_OF, STOP_SECONDS, service_specs
from tailorbird.devtools.stack.settings import ALL_SERVICES, CAPTURE_LOGIN, SERVICES, ServiceName, StackSettings
from tailorbird.devtools.stack.solr_service import solr_configsets
from tailorbird.operate.probes.hbase_probe import master_problem, regions_problem
from tailorbird.operate.probes.kafka_probe import kafka_problem
from tailorbird.operate.probes.mysql_probe import mysql_problem
from tailorbird.operate.probes.opensearch_probe import opensearch_problem
from tailorbird.operate.probes.pg_probe import postgres_problem
from tailorbird.operate.probes.solr_probe import solr_problem
from tailorbird.operate.probes.tcp_probe import port_answers, port_is_free

T = TypeVar("T")

# ends a server that has child processes with them
_AT_ONCE: Mapping[ServiceName, signal.Signals] = {"postgres": signal.SIGQUIT}

_TEMPLATES = (
    "mysql/users.sql",
    "postgres/users.sql",
    "kafka/server.properties",
    "hbase/hbase-site.xml",
    "solr/solr.xml",
    "solr/jetty.xml",
    "solr/web.xml",
    "opensearch/LocalNode.java",
    "opensearch/opensearch.yml",
    "log4j2.properties",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """State of one service. `problem` is why it is not ready. `stale`: it runs with outdated settings."""

    name: ServiceName
    state: str
    pid: int
    rss_mib: float
    seconds: float
    ports: Mapping[str, int]
    stale: bool
    problem: str


class Stack:
    """One local stack. Several callers and processes may use it at once; critical steps are serialised."""

    def __init__(self, settings: StackSettings, environ: Mapping[str, str] | None = None) -> None:
        self.settings = settings
        self._environ = os.environ if environ is None else environ
        self._lock = -1

    def addresses(self) -> dict[str, str]:
        """Return the addresses of the servers for clients."""
        return self.settings.addresses()

    def fetch(self, progress: ProgressListener = silent, bundles: Iterable[Bundle] = BUNDLES) -> None:
        """Download missing files to the cache: jars, MySQL, and Java or libaio if the machine has none."""
        fetch(self.settings.cache, self._environ, progress, tuple(bundles))

    def up(self, progress: ProgressListener = silent, services: Iterable[ServiceName] = SERVICES) -> None:
        """Start the services that do not run, and wait until all answer. May be repeated, also after any crash.

        Raises UsageError if another program uses a port. Raises TailorbirdError, with the end of the log, if a
        server does not become ready; the other servers keep running."""
        wanted = [name for name in ALL_SERVICES if name in set(services)]
        with self._locked():
            check_space(self.settings.home, 500)
            living = running_services(self.settings.home)
            self._check_ports([name for name in wanted if name not in living])
            specs = self._specs(progress, wanted)
            install_configsets(solr_configsets(self.settings))
            self._report_ports(name for name in wanted if name not in living)
            for name in wanted:
                if name in living and living[name].fingerprint != specs[name].fingerprint:
                    note = "runs with older settings; `tailorbird stack down`, then `up`, applies the new ones"
                    progress(StackProgress(what=name, step="note", detail=note))
            last = [name for name in wanted if name == "solrcloud"]  # it needs HBase's ZooKeeper
            for some in ([name for name in wanted if name not in last], last):
                _each(some, lambda name: self._bring_up(specs[name], living.get(name), progress))

    def _report_ports(self, starting: Iterable[ServiceName]) -> None:
        """Record the ports of the services that are starting. The recorded ports of running services are kept."""
        ports = local_ports(self.settings.home)
        for name in starting:
            ports.update(self.settings.ports.of(name))
        write_file(self.settings.home / PORTS, json.dumps(ports))

    def start(self, service: ServiceName, progress: ProgressListener = silent) -> None:
        """Start one service unless it runs, and wait until it answers."""
        self.up(progress, (service,))

    def stop(self, service: ServiceName, progress: ProgressListener = silent) -> None:
        """Stop one service gracefully, if it runs."""
        if self.settings.home.is_dir():
            with self._locked():
                self._stop([service], progress)

    def kill(self, service: ServiceName) -> None:
        """Send SIGKILL to one service, like a power failure, and wait until it has ended, at most ten seconds.

        Raises UsageError if it does not run."""
        running = running_services(self.settings.home).get(service)
        if running is None:
            raise UsageError(f"{service} does not run", "start it with `tailorbird stack up`")
        running.signal(signal.SIGKILL)
        running.wait_gone(10.0)

    def down(self, *, purge: bool = False, progress: ProgressListener = silent) -> None:
        """Stop every service. `purge` also removes the data folder (the cache of downloads stays). The services then
        end at once, because what they would still write is removed."""
        if not self.settings.home.is_dir():
            return
        with self._locked():
            self._stop(ALL_SERVICES, progress, at_once=purge)
            if purge:
                purge_home(self.settings.home)

    def run(self, service: ServiceName) -> None:
        """Replace this process by one service, in the foreground. The services that it needs must already run.

        Raises UsageError if the service runs already."""
        with self._locked():
            check_space(self.settings.home, 500)
            living = running_services(self.settings.home)
            if service in living:
                raise UsageError(
                    f"{service} already runs as pid {living[service].pid}", "stop it with `tailorbird stack down`"
                )
            self._check_ports([service])
            spec = self._specs(silent, [service])[service]
            install_configsets(solr_configsets(self.settings))
            self._prepare(spec)
        mark = mark_of(service, self.settings.home, spec.fingerprint)
        os.chdir(self.settings.home)
        os.execve(spec.argv[0], spec.argv, {**self._environ, **spec.environ, **mark})

    def status(self) -> list[ServiceStatus]:
        """Return the state of every service, read-only."""
        living = running_services(self.settings.home)
        fingerprints: dict[ServiceName, str] = {}
        if living:
            java = find_java(self.settings.cache, self._environ, silent)
            tools = find_tools(self.settings.cache, java, silent, with_mysql=True)
            specs = service_specs(self.settings, tools, _templates())
            fingerprints = {name: spec.fingerprint for name, spec in specs.items()}
        shown = [name for name in ALL_SERVICES if name in SERVICES or name in living]
        return _each(shown, lambda name: self._status(name, living.get(name), fingerprints.get(name, "")))

    def problem(self, service: ServiceName) -> str:
        """Return the reason why a service is not ready for its clients, or an empty text."""
        host, ports, addresses = self.settings.bind, self.settings.ports, self.addresses()
        if service == "mysql-shop":
            return mysql_problem(host, ports.mysql_shop, CAPTURE_LOGIN)
        if service == "mysql-crm":
            return mysql_problem(host, ports.mysql_crm, CAPTURE_LOGIN)
        if service == "postgres":
            return postgres_problem(host, ports.postgres, CAPTURE_LOGIN)
        if service == "kafka":
            return kafka_problem(Brokers(addresses["kafka"]))
        if service == "thrift":
            return regions_problem(host, ports.thrift)
        if service in ("solr", "solrcloud"):
            return solr_problem(addresses[service])
        if service == "opensearch":
            return opensearch_problem(SearchServer(url=addresses[service]))
        closed = [name for name, port in ports.of("hbase") if not port_answers(host, port)]
        if closed:
            return f"no answer on {', '.join(closed)}"
        problem = master_problem(zookeeper=addresses["zookeeper"], thrift=addresses["thrift"])
        if not problem and port_answers(host, ports.thrift):
            problem = regions_problem(host, ports.thrift)
        return problem

    def log_tail(self, service: ServiceName, lines: int = 15) -> str:
        """Return the end of a service's output since its start: its standard output, then its log."""
        parts = [tail(read_log(path), lines) for path in reversed(log_files(self.settings, service))]
        return "\n".join(part for part in parts if part)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with explained(self.settings.home):
            mark_home(self.settings.home)
            with locked(self.settings.home / "lock") as self._lock:
                yield

    def _specs(self, progress: ProgressListener, services: Iterable[ServiceName]) -> dict[ServiceName, ServiceSpec]:
        chosen = set(services)
        java = find_java(self.settings.cache, self._environ, progress)
        needed = {BUNDLE_OF[name] for name in chosen}
        fetch_bundles(self.settings.cache, java, progress, [bundle for bundle in BUNDLES if bundle in needed])
        tools = find_tools(self.settings.cache, java, progress, with_mysql="mysql" in needed)
        return service_specs(self.settings, tools, _templates())

    def _check_ports(self, services: Iterable[ServiceName]) -> None:
        for name, port in (listener for service in services for listener in self.settings.ports.of(service)):
            if not port_is_free(self.settings.bind, port):
                holder = holder_of(port)
                raise UsageError(
                    f"port {port} ({name}) is in use" + (f" by {holder}" if holder else ""),
                    f"stop it, or choose another: --port {name}={port % 50_000 + 10_000}, or all: --port-offset 1000",
                )

    def _prepare(self, spec: ServiceSpec) -> None:
        for path, text in spec.files.items():
            write_file(path, text)
        for folder in spec.folders:
            folder.mkdir(parents=True, exist_ok=True)
        for path in spec.leftovers:
            path.unlink(missing_ok=True)
        set_aside(spec.log)
        set_aside(spec.out)
        preparation = spec.preparation
        if preparation is None or preparation.result.exists():
            return
        shutil.rmtree(preparation.work, ignore_errors=True)
        preparation.work.parent.mkdir(parents=True, exist_ok=True)
        with spec.out.open("ab") as out:
            done = subprocess.run(
                preparation.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**self._environ, **spec.environ},
                # it also holds the lock: after kill -9 of this command the next one waits until it ends
                pass_fds=(self._lock,),
                check=False,
            )
        if done.returncode:
            raise self._failure(spec.name, "its data folder could not be prepared")
        preparation.work.rename(preparation.result)

    def _bring_up(self, spec: ServiceSpec, running: RunningServer | None, progress: ProgressListener) -> None:
        name = spec.name
        if running is None:
            if spec.preparation and not spec.preparation.result.exists():
                progress(StackProgress(what=name, step="prepare"))
            self._prepare(spec)
            progress(StackProgress(what=name, step="start"))
            running = launch(
                name,
                spec.argv,
                home=self.settings.home,
                fingerprint=spec.fingerprint,
                environ={**self._environ, **spec.environ},
                out=spec.out,
            )
        began = time.monotonic()
        while problem := self.problem(name):
            if not running.alive:
                raise self._failure(name, "it ended while starting")
            if time.monotonic() - began > spec.start_seconds:
                raise self._failure(name, f"not ready after {spec.start_seconds:.0f} s ({problem})")
            time.sleep(0.2)
        progress(StackProgress(what=name, step="ready", detail=f"on port {spec.ports[0][1]}"))

    def _stop(self, services: Iterable[ServiceName], progress: ProgressListener, *, at_once: bool = False) -> None:
        living = running_services(self.settings.home)

        def stop(name: ServiceName) -> None:
            running = living[name]
            progress(StackProgress(what=name, step="stop"))
            running.signal(_AT_ONCE.get(name, signal.SIGKILL) if at_once else signal.SIGTERM)
            if not running.wait_gone(STOP_SECONDS[name]):
                running.signal(signal.SIGKILL)
                running.wait_gone(10.0)
            progress(StackProgress(what=name, step="stopped"))

        # clients before the servers that they would otherwise wait for
        for group in (
            ("thrift", "solr", "solrcloud", "opensearch"),
            ("hbase", "kafka", "mysql-shop", "mysql-crm", "postgres"),
        ):
            _each([name for name in services if name in group and name in living], stop)

    def _status(self, name: ServiceName, running: RunningServer | None, fingerprint: str) -> ServiceStatus:
        ports = dict(self.settings.ports.of(name))
        if running is None:
            return ServiceStatus(
                name=name, state="stopped", pid=0, rss_mib=0.0, seconds=0.0, ports=ports, stale=False, problem=""
            )
        problem = self.problem(name)
        return ServiceStatus(
            name=name,
            state="not ready" if problem else "ready",
            pid=running.pid,
            rss_mib=round(running.rss_mib, 1),
            seconds=round(running.seconds, 1),
            ports=ports,
            stale=running.fingerprint != fingerprint,
            problem=problem,
        )

    def _failure(self, service: ServiceName, what: str) -> TailorbirdError:
        parts = [reporting_lines(read_log(path)) for path in reversed(log_files(self.settings, service))]
        text = "\n".join(part for part in parts if part)
        return TailorbirdError(f"{service}: {what}; its log says:\n{text}\n{service}", remedy(text, service))


def _each(names: Iterable[ServiceName], act: Callable[[ServiceName], T]) -> list[T]:
    """Run an action for several services at the same time. Raises the errors after all have ended."""
    names = list(names)
    if not names:
        return []
    with ThreadPoolExecutor(len(names)) as pool:
        futures = [pool.submit(act, name) for name in names]
    failures = [error for error in (future.exception() for future in futures) if error is not None]
    if len(failures) > 1 and all(isinstance(error, TailorbirdError) for error in failures):
        raise TailorbirdError("\n".join(map(str, failures)))
    return [future.result() for future in futures]


def _templates() -> dict[str, str]:
    folder = files("tailorbird.devtools.stack") / "files"
    return {name: folder.joinpath(name).read_text() for name in _TEMPLATES}
