"""PostgreSQL servers that a test may kill: the stack's version, and others from Maven."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg

from cdc.model.artefacts import VERSIONS, bundle_folder, cache_folder
from tailorbird.devtools.stack.artefacts import MAVEN_GOAL
from tailorbird.devtools.stack.postgres_service import postgres
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.proc_tools import find_java, find_tools, unpack_postgres
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.settings import CAPTURE_LOGIN, LOAD_LOGIN, StackSettings
from tailorbird.operate.probes.pg_probe import postgres_problem
from tests.support.digests import must_have_digest
from tests.support.ports import free_port

OTHERS: Mapping[str, str] = {"15": "15.15.0"}  # the oldest supported version
_DIGESTS = {"15": "7c73da91870b0615b37a8ceb84871bd42f28c3600f87a97ca9747f4a0b8d2dbb"}  # SHA-256 of their jars


class PgServer:
    """One server; its data survives `kill` and `start`."""

    def __init__(self, home: Path, version: str = "18", flags: Mapping[str, str] | None = None) -> None:
        cache = cache_folder(os.environ).absolute()
        settings = StackSettings(home=home, cache=cache)
        Stack(settings).fetch(bundles=("postgres",))
        self.port = free_port()
        settings = replace(settings, ports=replace(settings.ports, postgres=self.port))
        tools = find_tools(cache, find_java(cache, os.environ, silent), silent, with_mysql=False)
        users = (files("tailorbird.devtools.stack") / "files" / "postgres" / "users.sql").read_text()
        self._spec = postgres(settings, tools, {"postgres/users.sql": users})
        self._folders = str(bundle_folder(cache, "postgres")), str(_fetched(cache, version))
        self._flags = [word for name, value in (flags or {}).items() for word in ("-c", f"{name}={value}")]
        self._process: subprocess.Popen[bytes] | None = None
        for path, text in self._spec.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for folder in (*self._spec.folders, self._spec.out.parent, home / "data"):
            folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        preparation = self._spec.preparation
        assert preparation is not None
        if not preparation.result.exists():
            done = subprocess.run(self._command(preparation.argv), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
            preparation.work.rename(preparation.result)
        deadline = time.monotonic() + 60
        self._launch()
        while why := postgres_problem("127.0.0.1", self.port, CAPTURE_LOGIN):
            assert time.monotonic() < deadline, why
            time.sleep(0.05)
            if self._process is not None and self._process.poll() is not None:
                said = self._spec.out.read_text()[-2000:]
                # the processes of a killed server end a moment later
                assert "pre-existing shared memory block" in said, said
                self._launch()

    def _launch(self) -> None:
        with self._spec.out.open("ab") as out:
            command = [*self._command(self._spec.argv), *self._flags]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def _command(self, argv: tuple[str, ...]) -> list[str]:
        return [part.replace(*self._folders) for part in argv]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill it at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(60)

    @contextmanager
    def session(self, database: str = "billing", *, autocommit: bool = True) -> Iterator[psycopg.Connection[Any]]:
        """Open a connection of the data's owner."""
        login = LOAD_LOGIN
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=login.user, password=login.password, dbname=database,
            autocommit=autocommit, connect_timeout=5, options="-c timezone=UTC",
        ) as connection:  # fmt: skip
            yield connection


def _fetched(cache: Path, version: str) -> Path:
    """Return the folder of a version's programs."""
    if version == VERSIONS["postgres"].partition(".")[0]:
        return bundle_folder(cache, "postgres")
    folder = cache / "matrix" / f"postgres-{OTHERS[version]}"
    if not folder.exists():
        work = folder.with_name(f"{folder.name}.{os.getpid()}.new")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        pom = (files("tailorbird.devtools.stack") / "files" / "poms" / "postgres.xml").read_text()
        (work / "pom.xml").write_text(pom.replace(VERSIONS["postgres"], OTHERS[version]))
        command = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), MAVEN_GOAL, f"-DoutputDirectory={work / 'jars'}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        (jar,) = (work / "jars").glob("*.jar")
        must_have_digest(jar, _DIGESTS[version])
        unpack_postgres(jar, work / "server").rename(folder)
        shutil.rmtree(work)
    return folder
