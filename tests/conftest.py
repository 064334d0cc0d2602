"""What tests share: the real servers, started once for all integration tests, and names that no other test has.

The servers are a stack of their own (ports + 10000, folder `.tailorbird/tests`), which tests may kill beside a stack
in use. `TAILORBIRD_TESTS_USE_RUNNING_STACK=1` takes the running default stack instead, which saves its start while one
works on a single test; such tests must not stop its servers. `TAILORBIRD_TESTS_SERVICES=kafka,mysql-shop` starts
no others.

`make test` has two workers: one runs all tests that need servers, one after the other, the other all that need none.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from console.stack.bars import telling
from console.stack.proc_stack import Stack
from console.stack.settings import SERVICES, StackSettings

# The machine may be busy: no test fails because one of its examples took long.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")

ROOT = Path(__file__).parent.parent
PORT_OFFSET = 10_000


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups behind us
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs servers is one group of tests, for one worker; of the others each file is one."""
    for item in items:
        needs = item.get_closest_marker("integration") is not None
        item.add_marker(pytest.mark.xdist_group("servers" if needs else item.nodeid.partition("::")[0]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Workers that do not keep to the groups would stop each other's servers."""
    lost = [item.nodeid for item in session.items if "@" not in item.nodeid]
    if session.config.getoption("loadgroup", False) and lost:
        raise pytest.UsageError(f"pytest-xdist does not see the group of {lost[0]}: is this pytest too new for it?")


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The servers, up and answering; the environment leads every topology and child process to them."""
    shared = os.environ.get("TAILORBIRD_TESTS_USE_RUNNING_STACK") == "1"
    own = {name: value for name, value in os.environ.items() if not name.startswith("TAILORBIRD_PORT")}
    settings = (
        StackSettings.from_environ(os.environ, ROOT)
        if shared
        else StackSettings.from_environ(own, ROOT, home=Path(".tailorbird/tests"), port_offset=PORT_OFFSET)
    )
    servers = Stack(settings)
    if not shared:
        servers.down(purge=True)
    before = dict(os.environ)
    os.environ.update(settings.environ())
    with telling() as progress:
        only = os.environ.get("TAILORBIRD_TESTS_SERVICES")
        servers.up(progress, [name for name in SERVICES if only is None or name in only.split(",")])
    yield servers
    os.environ.clear()
    os.environ.update(before)
    if not shared:
        servers.down(purge=True)


@pytest.fixture(autouse=True)
def _servers_for_integration(request: pytest.FixtureRequest) -> None:
    """Every integration test has the servers, whether it names them or not."""
    if request.node.get_closest_marker("integration"):
        request.getfixturevalue("stack")


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test or run has used, fit for topologies, databases and topics."""
    return lambda stem: f"{stem}_{uuid.uuid4().hex[:10]}"
