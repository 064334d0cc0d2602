"""What tests share: the real servers, started once for all integration tests, and names that no other test has.

The servers are a stack of their own (ports + 10000, in `.tailorbird/tests`), which tests may kill beside a stack
in use. `TAILORBIRD_TESTS_USE_RUNNING_STACK=1` takes the running default stack instead, which saves its start while one
works on a single test; such tests must not stop its servers. `TAILORBIRD_TESTS_SERVICES=kafka,mysql-shop` starts
no others.

`make test` has two workers, one a processor: one runs all that need these servers, one after the other; the other one
those that need few of them (marked `kafka`), which it has of its own, then what needs none. With a third one Spark's
Python workers did not start in the ten seconds that Spark has for them, on a machine of two slow processors.
Two checkouts tested at a time get ports of their own by `TAILORBIRD_TESTS_PORT_OFFSET=12000` for one of them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import SERVICES, ServiceName
from tests.support.pg_servers import PgServer
from tests.support.servers import Claim, Servers, named

# The machine may be busy: no test fails because one of its examples took long.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")

ROOT = Path(__file__).parent.parent
SERVERS = Servers(ROOT)
CLAIM = Claim(ROOT)
SMALL = ("tests/test_glossary.py", "tests/test_rooms.py")
SPARK = "tests/joins/test_spark_session.py"
OWN_SERVERS = (
    "tests/databases/",
    "tests/ingest/binlog/",
    "tests/ingest/poll/",
    "tests/ingest/postgres/",
)  # tests there change global settings, of servers that they start themselves


def shares_servers(item: pytest.Item) -> bool:
    """Whether a test needs servers that others need, too."""
    own = item.nodeid.startswith(OWN_SERVERS) or needs_kafka_alone(item)
    return item.get_closest_marker("integration") is not None and not own


def needs_kafka_alone(item: pytest.Item) -> bool:
    """Whether of the servers it needs no other, but those that its mark names."""
    return item.get_closest_marker("kafka") is not None


def services_of(item: pytest.Item) -> tuple[ServiceName, ...]:
    """The servers that a test needs up."""
    mark = item.get_closest_marker("kafka")
    return SERVICES if mark is None else ("kafka", *mark.args)


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups behind us
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the same servers is one group, for one worker; of the others each file is one."""
    for item in items:
        group = "servers" if shares_servers(item) else item.nodeid.partition("::")[0]
        if needs_kafka_alone(item):
            group = "kafka"
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """What takes longest begins first, so that no worker waits for the other at the end; the sort keeps all else.

    xdist gives each worker two groups at once; the second one waits behind the servers' tests: those are small ones.
    """
    if shares_servers(item):
        return 0
    if needs_kafka_alone(item):
        return 1
    if item.nodeid.startswith(SPARK):
        return 2
    if item.nodeid.startswith(SMALL):
        return 3
    return 4 if "test_spark" in item.nodeid else 5


def pytest_collection_finish(session: pytest.Session) -> None:
    """Workers that do not keep to the groups would stop each other's servers; so would a second run in this folder."""
    lost = [item.nodeid for item in session.items if "@" not in item.nodeid]
    if session.config.getoption("loadgroup", False) and lost:
        raise pytest.UsageError(f"pytest-xdist does not see the group of {lost[0]}: is this pytest too new for it?")
    alone = not hasattr(session.config, "workerinput") and not session.config.option.collectonly
    if alone and any(shares_servers(item) or needs_kafka_alone(item) for item in session.items):
        _claim_servers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    """Workers collect for their run, which claims for them: their ids end with their groups."""
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
    """Every integration test has its servers, whether it names them or not."""
    if shares_servers(item) or needs_kafka_alone(item):
        SERVERS.need(named(os.environ.get("TAILORBIRD_TESTS_SERVICES"), services_of(item)))


def pytest_sessionfinish() -> None:
    """The servers go with the last test."""
    SERVERS.close()


@pytest.fixture(autouse=True)
def log_lines_end_with_the_test() -> Iterator[None]:
    """A command that a test runs in this process sets the log up, on a standard error that ends with the test."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The servers, up and answering; the environment leads every topology and child process to them."""
    return SERVERS.stack


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgServer]:
    """A PostgreSQL for all tests that ask for one."""
    server = PgServer(tmp_path_factory.mktemp("postgres"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test or run has used, fit for topologies, databases and topics."""
    return lambda stem: f"{stem}_{uuid.uuid4().hex[:10]}"
