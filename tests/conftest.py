"""Shared fixtures: the real servers, started once for all integration tests, and names that no other test has.

The tests start their own stack of servers (ports + 10000, in `.tailorbird/tests`), which they may kill while another
stack is in use. `TAILORBIRD_TESTS_USE_RUNNING_STACK=1` uses the running default stack instead, which saves the start
while you work on a single test; such tests must not stop its servers. `TAILORBIRD_TESTS_SERVICES=kafka,mysql-shop`
starts only these.

`make test` has three workers. The first runs all tests that need these servers, one after the other. The second runs
those that need few of them (marked `kafka`), with its own servers, and those that open Spark sessions in the worker.
Both wait for servers for a third of their time. A third worker, with a lower priority, uses this time for the tests
that need neither. It starts no Spark: with a third Spark on two slow processors, Spark's Python workers did not start
within Spark's limit of ten seconds. A worker without tests takes those that are left. To test two checkouts at a time,
give one of them other ports with `TAILORBIRD_TESTS_PORT_OFFSET=12000`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from ingest.log.memory_log import MemoryLog
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import SERVICES, ServiceName
from tests.support.exact_records import checked
from tests.support.pg_servers import PgServer
from tests.support.servers import Claim, Servers, named

# The machine may be busy: no test fails because one of its examples took long. Each run has other examples.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")

# A JVM of the tests lives for seconds: the second compiler would cost more than it saves, half of a join's processor
# time. Benchmarks and users run with it.
MemoryLog.commit = checked(MemoryLog.commit)  # type: ignore[method-assign,assignment]

os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

ROOT = Path(__file__).parent.parent
SERVERS = Servers(ROOT)
CLAIM = Claim(ROOT)
SMALL = ("tests/test_glossary.py", "tests/test_rooms.py")
LARGE = "tests/databases/test_random_databases.py"
# They open Spark sessions in the worker itself. All sessions of a process share a JVM, which starts once if one worker
# runs all these tests, after tests/joins/test_conformance.py.
ONE_JVM = tuple(
    f"tests/joins/test_{name}.py"
    for name in ("meaning", "spark_by_time", "spark_expressions", "spark_session", "spark_shapes")
)
HOSTILE = "tests/hostile/"  # its modules share a server of each kind
OWN_SERVERS = (
    "tests/databases/",
    HOSTILE,
    "tests/ingest/binlog/",
    "tests/ingest/poll/",
    "tests/ingest/postgres/",
)  # tests there change global settings, but of servers that they start themselves


def shares_servers(item: pytest.Item) -> bool:
    """Return whether a test needs servers that other tests need, too."""
    own = item.nodeid.startswith(OWN_SERVERS) or needs_kafka_alone(item)
    return item.get_closest_marker("integration") is not None and not own


def needs_kafka_alone(item: pytest.Item) -> bool:
    """Return whether a test needs only the servers that its mark names."""
    return item.get_closest_marker("kafka") is not None


def needs_hbase(item: pytest.Item) -> bool:
    """Return whether a test's mark names HBase, which only the worker of all servers starts."""
    mark = item.get_closest_marker("kafka")
    return mark is not None and "hbase" in mark.args


def runs_beside_kafka(item: pytest.Item) -> bool:
    """Return whether a test is for the other worker: with Kafka and few servers, or with Spark in the worker itself."""
    few = needs_kafka_alone(item) and not needs_hbase(item)
    return few or (item.nodeid.startswith(ONE_JVM) and item.get_closest_marker("long") is not None)


def runs_on_shared_servers(item: pytest.Item) -> bool:
    """Return whether a test is for one of the two workers with servers."""
    return shares_servers(item) or needs_hbase(item) or runs_beside_kafka(item)


@cache
def lower_priority() -> None:
    """Let this worker use only what those with servers leave. xdist decides which workers have the servers."""
    os.nice(5)


def services_of(item: pytest.Item) -> tuple[ServiceName, ...]:
    """Return the servers that a test needs."""
    mark = item.get_closest_marker("kafka")
    return SERVICES if mark is None else ("kafka", *mark.args)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups after this hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests that need the same servers for one worker; every other file is a group."""
    for item in items:
        group = item.nodeid.partition("::")[0]
        if shares_servers(item) or needs_hbase(item):
            group = "servers"
        elif item.nodeid.startswith(HOSTILE) and item.get_closest_marker("integration") is not None:
            group = "hostile"
        if runs_beside_kafka(item):
            group = "kafka"
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Return a sort key: the slowest groups are first, so that no worker waits for the other at the end (stable sort).

    xdist gives each worker two groups at once; the second one waits until the first has run, so it is a small one for
    the tests with servers.
    """
    if runs_on_shared_servers(item):
        return int(runs_beside_kafka(item))
    if item.nodeid.startswith(LARGE):
        return 2
    if item.nodeid.startswith(SMALL):
        return 3
    return 4


def pytest_collection_finish(session: pytest.Session) -> None:
    """Reject workers that ignore the groups, since they would stop each other's servers, and a second run in this
    folder."""
    lost = [item.nodeid for item in session.items if "@" not in item.nodeid]
    if session.config.getoption("loadgroup", False) and lost:
        raise pytest.UsageError(f"pytest-xdist does not see the group of {lost[0]}: is this pytest too new for it?")
    alone = not hasattr(session.config, "workerinput") and not session.config.option.collectonly
    if alone and any(shares_servers(item) or needs_kafka_alone(item) for item in session.items):
        _claim_servers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    """Claim the servers for the workers' run if they collected tests of servers; their ids end with the group."""
    if any(one.endswith(("@servers", "@kafka")) for one in ids):
        _claim_servers()


def _claim_servers() -> None:
    if os.environ.get("TAILORBIRD_TESTS_USE_RUNNING_STACK") != "1" and not CLAIM.take():
        other = "wait for it, or test in another clone with TAILORBIRD_TESTS_PORT_OFFSET=12000"
        pytest.exit(
            f"another run of tests has this checkout's servers: {other}", returncode=pytest.ExitCode.USAGE_ERROR
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the servers of every integration test, whether it requests them or not."""
    if "PYTEST_XDIST_WORKER" in os.environ and not runs_on_shared_servers(item):
        lower_priority()
    if shares_servers(item) or needs_kafka_alone(item):
        SERVERS.need(named(os.environ.get("TAILORBIRD_TESTS_SERVICES"), services_of(item)))


def pytest_sessionfinish() -> None:
    """Stop the servers after the last test."""
    SERVERS.close()


@pytest.fixture(autouse=True)
def log_lines_end_with_the_test() -> Iterator[None]:
    """Reset the log: a command that runs in this process configures it, with a standard error that ends with the
    test."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The running servers; the environment directs every topology and child process to them."""
    return SERVERS.stack


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgServer]:
    """A PostgreSQL server for all tests that request one."""
    server = PgServer(tmp_path_factory.mktemp("postgres"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Return a name that no other test or run has used, valid for topologies, databases and topics."""
    return lambda stem: f"{stem}_{uuid.uuid4().hex[:10]}"
