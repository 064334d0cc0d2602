"""HBase 2.5 instead of the stack's 2.6: fetched by Maven into the cache, with its own folder and ports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from cdc.model.artefacts import VERSIONS, bundle_folder
from tailorbird.devtools.stack.artefacts import MAVEN_GOAL
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.service_spec import ServiceSpec, Tools
from tailorbird.devtools.stack.services import service_specs
from tailorbird.operate.probes.hbase_probe import master_problem, regions_problem
from tests.support.ports import free_port

HBASE_25 = "2.5.8"


class OtherHBase:
    """Master, region server and ZooKeeper in one process, the Thrift server in another."""

    def __init__(self, stack: Stack, home: Path, version: str = HBASE_25) -> None:
        names = ("zookeeper", "hbase_master", "hbase_region", "thrift")
        self.ports = replace(stack.settings.ports, **{name: free_port() for name in names})
        settings = replace(stack.settings, home=home, ports=self.ports)
        java = find_java(settings.cache, os.environ, silent)
        tools = Tools(java=java, mysql=Path("unused"), libraries=None, root=False)
        folder = files("tailorbird.devtools.stack") / "files"
        templates = {
            path: folder.joinpath(path).read_text()
            for path in (
                *("hbase/hbase-site.xml", "log4j2.properties", "mysql/users.sql", "kafka/server.properties"),
                *("solr/solr.xml", "solr/jetty.xml", "solr/web.xml", "postgres/users.sql"),
            )
        }
        self._specs = service_specs(settings, tools, templates)
        self._jars = (str(bundle_folder(settings.cache, "hbase")), str(fetched(settings.cache, version)))
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start it and wait until it answers."""
        zookeeper, thrift = f"127.0.0.1:{self.ports.zookeeper}", f"127.0.0.1:{self.ports.thrift}"
        self._launch(self._specs["hbase"], lambda: master_problem(zookeeper=zookeeper, thrift=thrift))
        self._launch(self._specs["thrift"], lambda: regions_problem("127.0.0.1", self.ports.thrift))

    def stop(self) -> None:
        """Stop it."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _launch(self, spec: ServiceSpec, problem: Callable[[], str]) -> None:
        for path, text in spec.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for path in (spec.log.parent, spec.out.parent, *spec.folders):
            path.mkdir(parents=True, exist_ok=True)
        command = [part.replace(*self._jars) for part in spec.argv]
        with spec.out.open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **spec.environ})
        self._processes.append(process)
        deadline = time.monotonic() + 240
        while why := problem():
            assert process.poll() is None, spec.out.read_text()[-2000:]
            assert time.monotonic() < deadline, why
            time.sleep(0.5)


def fetched(cache: Path, version: str) -> Path:
    """Return the folder of its jars: the stack's own list of dependencies with another version."""
    folder = cache / "matrix" / f"hbase-{version}"
    if not folder.exists():
        work = folder.with_name(f"{folder.name}.{os.getpid()}.new")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        pom = (files("tailorbird.devtools.stack") / "files" / "poms" / "hbase.xml").read_text()
        (work / "pom.xml").write_text(pom.replace(VERSIONS["hbase"], version))
        command = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), MAVEN_GOAL, f"-DoutputDirectory={work / 'jars'}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        (work / "jars").rename(folder)
        shutil.rmtree(work)
    return folder
