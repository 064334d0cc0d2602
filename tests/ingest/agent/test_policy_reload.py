"""A policy is applied when its file changes: what it no longer allows stops, what it now allows begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from cdc.model.errors import TailorbirdError
from ingest.agent.file_policy import PolicyFile
from tests.ingest.agent.test_agent import World, until
from tests.ingest.agent.test_policy import POLICY, policy
from tests.support.gateways import certificates

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    structlog.reset_defaults()
    return certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    yield (made := World(folder))
    made.close()


def status(world: World, source: str = "s") -> tuple[str, str]:
    """Return what the gateway knows of a source."""
    reported = world.reported(source)
    return (reported.status, reported.reason) if reported else ("", "")


def test_a_session_follows_the_policy(world: World) -> None:
    """It is restarted with another mask, ends if its table may not leave, and begins again when it may."""
    world.dial(world.gateway("g1"))
    world.applied(world.desire(tables={"users": {}}))
    first = world.running["s"]
    world.agent.reload(policy())
    assert world.running["s"] is first, "the same policy restarts nothing"
    assert not first.stopped.is_set()
    world.agent.reload(policy(POLICY.replace("sha256(pepper)", "redact")))
    until(lambda: world.running.get("s") not in (None, first), "the session was not restarted")
    assert first.stopped.is_set()
    [rule] = world.running["s"].source.rules.values()
    assert rule.masks == {"mail": "redact"}
    world.agent.reload(policy(POLICY.replace("users:", "people:")))
    until(lambda: not world.running, "the session goes on")
    until(lambda: status(world)[0] == "failed", "it was not reported")
    assert "table shop.users may not leave shop-db" in status(world)[1]
    world.agent.reload(policy())
    until(lambda: status(world)[0] == "applied", "it does not begin again")
    assert "s" in world.running


def test_under_accept_an_exception_restarts_the_session(world: World) -> None:
    """No configuration lists the table, so only the policy differs."""
    accept = POLICY.replace("open: all", "open: {filter_policy: accept}")
    world.agent.reload(policy(accept))
    world.dial(world.gateway("g1"))
    world.applied(world.desire(database="open", tables={}, filter_policy="accept"))
    first = world.running["s"]
    world.agent.reload(policy(accept.replace("accept}", "accept, tables: {people: {ignored_columns: [mail]}}}")))
    until(lambda: world.running.get("s") not in (None, first), "the session was not restarted")
    until(lambda: "open.people: columns mail do not leave" in status(world)[1], "it was not reported")


def test_a_refused_version_is_tried_again(world: World) -> None:
    """While it is refused, the previous one runs, also under a new policy that still refuses it."""
    world.dial(world.gateway("g1"))
    world.applied(world.desire())
    first = world.running["s"]
    version = world.desire(tables={"orders": {}, "salaries": {}})
    until(lambda: "salaries may not leave" in status(world)[1], "it was not refused")
    world.agent.reload(policy(POLICY.replace("dumps: true", "dumps: true\nlocks: true")))
    until(lambda: "salaries may not leave" in status(world)[1], "it was not refused again")
    assert world.running["s"] is first
    world.agent.reload(policy(POLICY.replace("orders: {}", "orders: {}\n          salaries: {}")))
    world.applied(version)
    until(lambda: "s" in world.running and len(world.running["s"].source.tables) == 2, "it does not run")


def test_other_databases_and_labels_are_announced(world: World) -> None:
    """The agent connects again, because it announces them at the beginning of a stream."""
    world.dial(world.gateway("g1"))
    world.applied(world.desire())
    world.agent.reload(policy(POLICY.replace("{site: paris}", "{site: lyon}")))
    until(lambda: world.topic.state.presences["a1"].labels == {"site": "lyon"}, "it was not announced")
    until(lambda: "s" in world.running, "the source does not run")


def write(file: Path, text: str, moment: int) -> None:
    """Replace a file's content, with another time of change."""
    file.write_text(text)
    os.utime(file, ns=(moment, moment))


def test_a_file_is_read_when_it_has_changed_and_rests(tmp_path: Path) -> None:
    """A file that is being written is not read: half of it could allow more."""
    file, secret = tmp_path / "policy.yml", tmp_path / "secret"
    secret.write_text("one\n")
    write(file, POLICY, 1)
    watched = PolicyFile(str(file))
    assert watched.policy.connections["shop-db"].password == "one"
    assert watched.changed() is None
    write(file, POLICY.replace("paris", "lyon"), 2)
    assert watched.changed() is None, "it may still be written"
    write(file, POLICY.replace("paris", "rome"), 3)
    assert watched.changed() is None
    assert (read := watched.changed()) is not None
    assert (read.labels, watched.policy) == ({"site": "rome"}, read)
    assert watched.changed() is None
    write(secret, "two\n", 4)
    assert watched.changed() is None
    assert (read := watched.changed()) is not None
    assert read.connections["shop-db"].password == "two"
    assert watched.changed(now=True) == read, "on SIGHUP it is read in any case"


@pytest.mark.parametrize("content", ["dumps: [", "", None])
def test_an_invalid_file_leaves_the_previous_policy(tmp_path: Path, content: str | None) -> None:
    """It is reported once, until the file is valid again."""
    file = tmp_path / "policy.yml"
    (tmp_path / "secret").write_text("one")
    write(file, POLICY, 1)
    watched = PolicyFile(str(file))
    if content is None:
        file.unlink()
    else:
        write(file, content, 2)
    assert watched.changed() is None
    with pytest.raises(TailorbirdError, match="policy"):
        watched.changed()
    assert "policy" in watched.error
    assert watched.changed() is None
    assert watched.policy.labels == {"site": "paris"}
    write(file, POLICY.replace("paris", "lyon"), 3)
    assert watched.changed() is None
    assert (read := watched.changed()) is not None
    assert (read.labels, watched.error) == ({"site": "lyon"}, "")
