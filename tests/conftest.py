"""What tests share: the real servers, started once for all integration tests, and names that no other test has.

The servers are a stack of their own (ports + 10000, folder `.tailorbird/tests`), which tests may kill beside a stack
in use. `TAILORBIRD_TESTS_USE_RUNNING_STACK=1` takes the running default stack instead, which saves its start while one
works on a single test; such tests must not stop its servers. `TAILORBIRD_TESTS_SERVICES=kafka,mysql-shop` starts
no others.

`make test` runs two workers on one stack: one has all tests that start Spark, which needs what a small machine has, the
other one the rest. A test marked `alone` kills shared servers, or counts what they hold: no other integration test runs
beside it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.fixtures import FuncFixtureInfo
from hypothesis import settings

from console.stack.bars import telling
from console.stack.proc_stack import Stack
from console.stack.settings import SERVICES, StackSettings
from tests.support.sharing import Sharing

# The machine may be busy: no test fails because one of its examples took long.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")

ROOT = Path(__file__).parent.parent
PORT_OFFSET = 10_000
SHARING = Sharing(ROOT / ".tailorbird" / "tests-shared")
SHARED_BY_ALL = {"stack", "tmp_path_factory"}


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
    only = os.environ.get("TAILORBIRD_TESTS_SERVICES")

    def start() -> None:
        if not shared:
            servers.down(purge=True)
        with telling() as progress:
            servers.up(progress, [name for name in SERVICES if only is None or name in only.split(",")])

    def stop() -> None:
        if not shared:
            servers.down(purge=True)

    before = dict(os.environ)
    with SHARING.running(start, stop):
        os.environ.update(settings.environ())
        yield servers
        os.environ.clear()
        os.environ.update(before)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, and tests that share a fixture of their module stay together, in their order."""
    lengths: dict[str, tuple[bool, float]] = {}
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        lengths[group] = max(lengths.get(group, (False, 0.0)), _length(item))
        if group != item.nodeid:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: lengths[groups[item]], reverse=True)


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("spark") is not None:
        return "spark"
    info: FuncFixtureInfo = item._fixtureinfo  # type: ignore[attr-defined]  # pytest has no public way to ask
    for name, found in sorted(info.name2fixturedefs.items()):
        if name not in SHARED_BY_ALL and found[-1].scope in ("module", "session"):
            return item.nodeid.split("::")[0] if found[-1].scope == "module" else name
    return item.nodeid


def _length(item: pytest.Item) -> tuple[bool, float]:
    """What its author allows it; servers make one wait, while others may work."""
    limit = item.get_closest_marker("timeout")
    return item.get_closest_marker("integration") is not None, limit.args[0] if limit else 0.0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """An integration test runs when nobody has the servers alone; waiting for that is not its time."""
    if item.get_closest_marker("integration") is None:
        return (yield)
    with SHARING.held(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture(autouse=True)
def _servers_for_integration(request: pytest.FixtureRequest) -> None:
    """Every integration test has the servers, whether it names them or not."""
    if request.node.get_closest_marker("integration"):
        request.getfixturevalue("stack")


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test or run has used, fit for topologies, databases and topics."""
    return lambda stem: f"{stem}_{uuid.uuid4().hex[:10]}"
