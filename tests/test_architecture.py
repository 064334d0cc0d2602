"""Rules that a machine can check: which file may access which system, its length, its name.

Each rule has a planted violation that must be found.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"
PACKAGES = {"cdc", "ingest", "joins", "indexer", "tailorbird"}
LONGEST_FILE = 400
LONGEST_FUNCTION = 60
# The loop for most changes of a busy server: a call per transaction would cost what it saves (ADR 26).
LONG_FUNCTIONS = {("whole.py", "transactions")}

# The libraries that access each system. A file named `<prefix>_…` may import those of its row, no other file may.
SYSTEMS: dict[str, set[str]] = {
    "mysql": {"pymysql", "pymysqlreplication", "socket", "ssl"},
    "maria": {"pymysql", "pymysqlreplication", "socket", "ssl"},
    "pg": {"psycopg", "socket", "ssl"},
    "sql": {"duckdb", "sqlalchemy", "sqlite3"},
    "kafka": {"confluent_kafka", "kafka"},
    "grpc": {"grpc"},
    "hbase": {"happybase", "thriftpy2", "socket"},
    "solr": {"pysolr", "requests", "urllib.request", "http.client", "ssl"},
    "opensearch": {"opensearchpy", "urllib.request", "ssl"},
    "iceberg": {"pyiceberg", "sqlalchemy"},
    "zk": {"kazoo"},
    "spark": {"pyspark", "py4j"},
    "tcp": {"socket", "socketserver", "ssl"},
    "http": {"fastapi", "pydantic", "starlette", "uvicorn", "http", "urllib.request", "ssl"},
    "file": {"shutil", "tempfile", "mmap", "fcntl"},
    "proc": {"subprocess", "shutil", "tempfile", "socket", "fcntl", "resource", "http", "urllib.request"},
}
ALL_SYSTEM_LIBRARIES = set().union(*SYSTEMS.values())
# Modules that reach outside without a system of their own: allowed in files named after a system, and in wiring.
AMBIENT = {
    "os", "time", "random", "secrets", "logging", "structlog", "signal", "threading", "asyncio", "selectors",
    "prometheus_client", "multiprocessing", "concurrent", "queue", "atexit",
}  # fmt: skip
FILE_CALLS = {"read_text", "write_text", "read_bytes", "write_bytes", "mkdir", "unlink", "touch", "rmtree"}
# What changes Kafka apart from its records: only `cdc.process.kafka_admin` calls it, with kafka-python (ADR 88).
KAFKA_ADMIN = "kafka_admin.py"
KAFKA_CHANGES = {
    "create_topics",
    "create_partitions",
    "delete_topics",
    "delete_records",
    "alter_configs",
    "incremental_alter_configs",
    "reset_configs",
    "create_acls",
    "delete_acls",
    "alter_consumer_group_offsets",
    "alter_group_offsets",
    "reset_group_offsets",
    "delete_group_offsets",
    "delete_consumer_groups",
    "delete_groups",
}
KAFKA_OBJECTS = {"NewTopic", "NewPartitions", "KafkaAdminClient", "AclBinding"}
CLOCK_CALLS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("uuid", "uuid4")}


def role(path: Path) -> str:
    """Return `wiring`, the system that a file's name begins with, or `pure`."""
    if path.name.startswith(("run_", "__main__")) or {"tailorbird", "cli"} <= set(path.parts):
        return "wiring"
    prefix = path.name.split("_")[0]
    return prefix if prefix in SYSTEMS and "_" in path.name else "pure"


def imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [alias.name for alias in node.names]
            # a generator may be passed in; importing the type `Random` makes nothing random
            if node.module != "random" or names != ["Random"]:
                yield node.lineno, node.module


def within(module: str, libraries: set[str]) -> bool:
    return any(module == library or module.startswith(library + ".") for library in libraries)


def faults(path: Path, source: str) -> list[str]:
    """Return the faults of one file, each `name:line: what`."""
    nodes, kind = list(ast.walk(ast.parse(source))), role(path)
    allowed = SYSTEMS.get(kind, set())
    found = []
    for line, module in imported(nodes):
        if within(module, ALL_SYSTEM_LIBRARIES) and not within(module, allowed):
            found.append(f"{path.name}:{line}: a {kind} file imports {module}")
        if kind == "pure" and within(module, AMBIENT):
            found.append(f"{path.name}:{line}: a pure file imports {module}")
    for node in nodes:
        if kind != "pure" or not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            found.append(f"{path.name}:{node.lineno}: a pure file opens a file")
        if isinstance(node.func, ast.Attribute):
            owner = node.func.value
            owner_name = getattr(owner, "attr", getattr(owner, "id", ""))
            if node.func.attr in FILE_CALLS or (owner_name, node.func.attr) in CLOCK_CALLS:
                found.append(f"{path.name}:{node.lineno}: a pure file calls {owner_name}.{node.func.attr}")
    if path.name != KAFKA_ADMIN:
        found += [f"{path.name}:{line}: {what} outside of {KAFKA_ADMIN}" for line, what in kafka_changes(nodes)]
    found += [f"{path.name}:{line}: an AdminClient without `with`" for line in open_admins(nodes)]
    found += [f"{path.name}:{line}: a signal's handler sets an event: use `stop_event`" for line in set_events(nodes)]
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (path.name, node.name) not in LONG_FUNCTIONS:
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION and not generated(path):
                found.append(f"{path.name}:{node.lineno}: {node.name} is longer than {LONGEST_FUNCTION} lines")
    if not generated(path) and len(source.splitlines()) > LONGEST_FILE:
        found.append(f"{path.name}: longer than {LONGEST_FILE} lines")
    if path.stem in libraries():
        found.append(f"{path.name}: named after a library, which it would shadow under spark-submit")
    return found


def kafka_changes(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield what administrates Kafka through a client: its methods, and the objects that they need."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KAFKA_CHANGES:
            yield node.lineno, node.func.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("kafka", "confluent_kafka"):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in KAFKA_OBJECTS)


def open_admins(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Yield the lines of clients that no block closes, unless an object keeps them. The answers of a client refer to
    it, so its four threads and eight files would remain until a collection of garbage."""
    nodes = list(nodes)
    closed = {id(item.context_expr) for node in nodes if isinstance(node, ast.With) for item in node.items}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            closed.add(id(node.value))  # it lives as long as the object
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "AdminClient" and id(node) not in closed:
            yield node.lineno


def set_events(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Yield the lines of signal handlers that set an event. They would wait for ever for a lock that the interrupted
    code has (`cdc.lifetime.proc_signals`)."""
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal":
            calls = [ast.unparse(call.func) for call in ast.walk(node.args[1]) if isinstance(call, ast.Call)]
            if any(call.endswith(".set") for call in calls):
                yield node.lineno


def generated(path: Path) -> bool:
    return path.stem.endswith("_pb2")


@cache
def libraries() -> set[str]:
    names = set(packages_distributions()) | set(sys.stdlib_module_names)
    # a module within a package shadows nothing of the standard library; only installed distributions matter
    # `events`, which opensearch-py needs, is no name of a file in a folder from which spark-submit runs a file
    names -= {"events", *PACKAGES}
    return names - set(sys.stdlib_module_names) | {"kafka", "pyspark"}


SOURCES = sorted(path for path in SRC.rglob("*.py") if not generated(path))


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(SRC)) for path in SOURCES])
def test_file_follows_the_rules(path: Path) -> None:
    """Every file accesses only the system in its name, is short, and shadows no library."""
    assert faults(path, path.read_text()) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("planner.py", "import kafka\n"),
        ("planner.py", "from confluent_kafka import Producer\n"),
        ("planner.py", "import os\n"),
        ("kafka_log.py", "from confluent_kafka.admin import NewTopic\n"),
        ("kafka_log.py", "from kafka import KafkaAdminClient\n"),
        ("kafka_log.py", "def make(admin):\n    admin.create_topics([])\n"),
        ("run_join.py", "def set(admin):\n    admin.incremental_alter_configs([])\n"),
        ("kafka_log.py", "def ends(servers):\n    return AdminClient(servers).list_topics()\n"),
        ("run_join.py", "signal.signal(signal.SIGTERM, lambda *_: stop.set())\n"),
        ("planner.py", "import datetime as dt\nnow = dt.datetime.now()\n"),
        ("planner.py", "text = open('x').read()\n"),
        ("planner.py", "from pathlib import Path\nPath('x').write_text('')\n"),
        ("kafka_log.py", "import happybase\n"),
        ("run_join.py", "import pysolr\n"),
        ("happybase.py", ""),
        ("long.py", "x = 1\n" * (LONGEST_FILE + 1)),
        ("long.py", "def much():\n" + "    x = 1\n" * LONGEST_FUNCTION),
    ],
)
def test_planted_fault_is_found(name: str, source: str) -> None:
    """The rules report each planted violation."""
    assert faults(Path("src/joins") / name, source) != []


def test_each_system_may_be_accessed_by_its_own_file() -> None:
    """The rules do not forbid the intended access."""
    assert faults(Path("src/ingest/kafka_log.py"), "import kafka\nimport time\n") == []
    assert faults(Path("src/joins/run_join.py"), "import os\nimport signal\n") == []


def test_no_other_distribution_provides_our_names() -> None:
    """`cdc`, `ingest`, `joins`, `indexer` and `tailorbird` are import names; no other installed distribution may
    provide them."""
    providers = packages_distributions()
    assert {name: set(providers.get(name, [])) - {"tailorbird"} for name in PACKAGES} == {n: set() for n in PACKAGES}


def test_every_folder_of_src_is_one_of_the_five() -> None:
    """The folders follow the data flow; a sixth one needs an ADR."""
    assert {p.name for p in SRC.iterdir() if p.is_dir() and not p.name.endswith(".egg-info")} == PACKAGES
