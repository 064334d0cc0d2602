"""Schema registries for tests: one in memory with Confluent's API, and Apicurio's, which is a real one.

`MemoryRegistry` checks compatibility with Avro's own library, as registries do. The contract
(tests/contracts/test_schema_registry.py) runs on both.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import avro.compatibility
import avro.schema

from tailorbird.devtools.stack.artefacts import MAVEN_GOAL
from tests.support.digests import must_have_digest
from tests.support.ports import free_port
from tests.support.waiting import wait_for

_VERSION = "2.6.13.Final"  # the last one for Java 17
_ARTEFACT = f"io.apicurio:apicurio-registry-app:{_VERSION}:tar.gz:all"
_COPY = MAVEN_GOAL.replace(":copy-dependencies", ":copy")
_SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"


class MemoryRegistry:
    """Subjects with versions, and schemas by id. New schemas must read the records of the newest one (BACKWARD)."""

    def __init__(self, login: str = "") -> None:
        self.login, self.broken = login, False
        self.schemas = list[str]()
        self.subjects = dict[str, list[int]]()

    def register(self, subject: str, schema: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer of a registration."""
        known = self.subjects.setdefault(subject, [])
        if known:
            with warnings.catch_warnings(action="ignore"):  # it does not know every logical type
                reader, writer = avro.schema.parse(schema), avro.schema.parse(self.schemas[known[-1] - 1])
            checker: Any = avro.compatibility.ReaderWriterCompatibilityChecker  # it has no types
            checked = checker().get_compatibility(reader, writer)
            if checked.compatibility is not avro.compatibility.SchemaCompatibilityType.compatible:
                return 409, {"error_code": 409, "message": "; ".join(checked.messages) or "incompatible"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        if number not in known:
            known.append(number)
        return 200, {"id": number}

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve it, and yield its URL."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(*registry.register(self.path.split("/")[2], json.loads(body)["schema"]))

            def do_GET(self) -> None:
                if found := re.fullmatch(r"/schemas/ids/(\d+)(\?.*)?", self.path):
                    self._answer(200, {"schema": registry.schemas[int(found[1]) - 1]})
                else:
                    self._answer(404, {"error_code": 404, "message": "not found"})

            def _answer(self, status: int, value: dict[str, Any]) -> None:
                wanted = "Basic " + base64.b64encode(registry.login.encode()).decode()
                if registry.broken:
                    status, value = 500, {"error_code": 50001, "message": "the store failed"}
                elif registry.login and self.headers["Authorization"] != wanted:
                    status, value = 401, {"error_code": 401, "message": "who are you"}
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@contextmanager
def apicurio(cache: Path, java: Path) -> Iterator[str]:
    """Start Apicurio's registry, which it downloads once, and yield the URL of its Confluent API."""
    folder, port = _unpacked(cache), free_port()
    command = [str(java), "-Xmx300m", f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    command += ["-jar", f"apicurio-registry-app-{_VERSION}-runner.jar"]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            wait_for(lambda: _answers(f"{url}/subjects"), "no registry", 180)
            backward = json.dumps({"compatibility": "BACKWARD"}).encode()  # the default of Confluent's
            kind = {"Content-Type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(f"{url}/config", backward, kind, method="PUT")).close()
            yield url
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def _unpacked(cache: Path) -> Path:
    folder = cache / "matrix" / f"apicurio-{_VERSION}"
    if not folder.exists():
        work = folder.with_name(f"{folder.name}.{os.getpid()}.new")
        work.mkdir(parents=True)
        command = ["mvn", "-q", "-B", _COPY, f"-Dartifact={_ARTEFACT}", f"-DoutputDirectory={work}"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        (archive,) = work.glob("*.tar.gz")
        must_have_digest(archive, _SHA256)
        with tarfile.open(archive) as opened:
            opened.extractall(work / "server", filter="data")
        (work / "server").rename(folder)
        shutil.rmtree(work)
    return folder
