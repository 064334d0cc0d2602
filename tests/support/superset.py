"""Apache Superset in a virtual environment of its own, and the part of its REST API that a test needs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.support.ports import free_port
from tests.support.waiting import wait_for

# the last three are what it needs without saying so, or in a version that it does not limit
PACKAGES = ("apache-superset==6.1.0", "psycopg2-binary==2.9.13", "cachetools", "flask-caching==2.3.1", "rich")
_PASSWORD = "superset-admin"
_CONFIG = """
SECRET_KEY = "of a test, not of a server that others reach"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False
"""


class Superset:
    """A client that is logged in as the administrator."""

    def __init__(self, url: str) -> None:
        self._url, self._session = url, requests.Session()
        login = {"username": "admin", "password": _PASSWORD, "provider": "db", "refresh": False}
        token = self.call("POST", "security/login", login)["access_token"]
        self._session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of an API call, which must succeed."""
        answer = self._session.request(method, f"{self._url}/api/v1/{path}", json=body, timeout=60)
        assert answer.ok, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def dataset(self, uri: str, schema: str, table: str) -> int:
        """Connect a database, and return the number of a new dataset of one of its tables."""
        database = self.call("POST", "database/", {"database_name": schema, "sqlalchemy_uri": uri})["id"]
        made = {"database": database, "schema": schema, "table_name": table}
        return int(self.call("POST", "dataset/", made)["id"])

    def columns(self, dataset: int) -> dict[str, str]:
        """Return the columns of a dataset with their types."""
        found = self.call("GET", f"dataset/{dataset}")["result"]["columns"]
        return {one["column_name"]: one["type"] for one in found}

    def sums(self, dataset: int, by: str, of: str) -> dict[Any, Any]:
        """Return what a chart of sums by a column shows."""
        metric = {"expressionType": "SIMPLE", "column": {"column_name": of}, "aggregate": "SUM", "label": "total"}
        query = {"columns": [by], "metrics": [metric], "row_limit": 1000}
        chart = {"datasource": {"id": dataset, "type": "table"}, "force": True, "queries": [query]}
        [found] = self.call("POST", "chart/data", chart)["result"]
        return {row[by]: row["total"] for row in found["data"]}


@contextmanager
def superset(cache: Path, folder: Path) -> Iterator[Superset]:
    """Install Superset once, start it, and yield a client."""
    programs, port = _installed(cache) / "bin", free_port()
    config = folder / "superset_config.py"
    config.write_text(_CONFIG.format(folder=folder))
    environ = {**os.environ, "SUPERSET_CONFIG_PATH": str(config), "FLASK_APP": "superset.app:create_app()"}
    log = (folder / "superset.log").open("wb")

    def run(*arguments: str) -> None:
        subprocess.run([programs / "superset", *arguments], env=environ, stdout=log, stderr=log, check=True)

    with log:
        run("db", "upgrade")
        names = ["--username", "admin", "--firstname", "a", "--lastname", "b", "--email", "a@example.com"]
        run("fab", "create-admin", *names, "--password", _PASSWORD)
        run("init")
        server = subprocess.Popen(
            [programs / "superset", "run", "-h", "127.0.0.1", "-p", str(port)], env=environ, stdout=log, stderr=log
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: _answers(f"{url}/health"), "Superset does not start", 180)
            client = Superset(url)
            yield client
            client.close()
        finally:
            server.kill()
            server.wait()


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


def _installed(cache: Path) -> Path:
    folder = cache / PACKAGES[0].replace("==", "-")
    with (cache / "superset.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            subprocess.run([folder / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
            (folder / "ready").touch()
    return folder
