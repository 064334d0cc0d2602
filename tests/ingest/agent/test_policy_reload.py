"""A policy is applied when its file changes: what it no longer allows stops, what it now allows begins."""

from __future__ import annotations

import os
import threading
import time
from errno import EIO, ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
import structlog

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from ingest.agent import grpc_agent, run_agent
from ingest.agent.file_policy import PolicyFile
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.grpc_tasks import Task
from ingest.agent.policy import NarrowedSource, Policy
from ingest.agent.policy_reader import read_policy
from ingest.fleet.desired import SourceSpec
from ingest.fleet.fleet_pb2 import Assign, Control_MySQLBinlog, StreamRequest, Withdraw
from tests.ingest.agent.test_agent import SPEC, World, until
from tests.ingest.agent.test_policy import POLICY, policy

pytestmark = pytest.mark.timeout(120)


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
    until(lambda: not world.running, "the session continues")
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


ORDERS_ONLY = POLICY.replace("users:", "people:")


class BrokenLog:
    """A log that cannot be written, as on a full disk."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> None:
            raise OSError(ENOSPC, "no space left on device")

        return fail


def test_errors_do_not_prolong_a_session_that_a_policy_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends even if the log cannot be written. Another source that cannot be decided ends, too; all are retried."""
    world.dial(world.gateway("g1"))
    world.applied(world.desire(tables={"users": {}}))
    world.applied(world.desire("broken"), "broken")
    world.applied(world.desire("other"), "other")
    narrowed = world.agent.narrowed

    def failing(spec: SourceSpec, topology: str, name: str) -> NarrowedSource:
        if name == "broken":
            raise KeyError("internal error")
        return narrowed(spec, topology, name)

    with monkeypatch.context() as patch:
        patch.setattr(grpc_agent, "log", BrokenLog())
        patch.setattr(world.agent, "narrowed", failing)
        with pytest.raises((OSError, KeyError)):
            world.agent.reload(policy(ORDERS_ONLY))
        until(lambda: set(world.running) == {"other"}, "a session continues")
        until(lambda: status(world)[0] == "failed", "the refusal was not reported")
        until(lambda: "KeyError" in status(world, "broken")[1], "the error was not reported")
    world.agent.reload(policy(ORDERS_ONLY))
    until(lambda: set(world.running) == {"other", "broken"}, "it was not tried again")


def test_a_session_that_cannot_begin_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host may have no more threads for a moment. The session before has ended, because its policy is another."""
    world.dial(world.gateway("g1"))
    world.applied(world.desire(tables={"users": {}}))
    first = world.running["s"]
    changed = policy(POLICY.replace("sha256(pepper)", "redact"))
    start = threading.Thread.start

    def failing(thread: threading.Thread) -> None:
        if thread.name == "capture s":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        with pytest.raises(RuntimeError):
            world.agent.reload(changed)
        until(lambda: not world.running, "the session continues")
    assert first.stopped.is_set()
    world.agent.reload(changed)
    until(lambda: "s" in world.running, "it was not tried again")


@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_corrected_policy_begins_no_second_session(world: World, withdrawn: bool) -> None:
    """The session that a wrong policy ended may need a while. The next one waits for it, as after a withdrawal."""
    ends, most = threading.Event(), list[int]()
    running = list[Task]()

    def capture(task: Task) -> None:
        running.append(task)
        most.append(len(running))
        task.stopped.wait()
        ends.wait(30)
        running.remove(task)

    agent = FleetAgent("a1", policy(), capture, world.catalog_seen)
    assign = Assign(source="s", epoch=1, version=1, spec=orjson.dumps(SPEC), topology="t")
    request = StreamRequest(type=Control_MySQLBinlog, assign=assign)
    agent.commanded(request)
    until(lambda: running, "it was not begun")
    if withdrawn:
        agent.commanded(StreamRequest(withdraw=Withdraw(source="s", epoch=1, why="test")))
        agent.commanded(request)
    else:
        agent.reload(policy(POLICY.replace("orders:", "others:")))
        agent.reload(policy())
    time.sleep(0.1)
    ends.set()
    until(lambda: len(most) == 2, "it does not begin again")
    assert most == [1, 1]
    for task in list(running):
        task.stopped.set()


def test_all_changed_sessions_stop_before_the_first_report(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that reads slowly delays reports. It must not delay the end of a session."""
    world.dial(world.gateway("g1"))
    for source in ("s", "other"):
        world.applied(world.desire(source, tables={"users": {}}), source)
    tasks, seen = list(world.began), list[list[bool]]()
    monkeypatch.setattr(
        world.agent, "_send_report", lambda request: seen.append([task.stopped.is_set() for task in tasks])
    )
    world.agent.reload(policy(ORDERS_ONLY))
    assert seen[0] == [True, True]


def test_no_error_ends_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/health` shows it. The policy is applied again later, without another change of its file."""
    file, applied = tmp_path / "policy.yml", list[Policy]()
    (tmp_path / "secret").write_text("one")
    write(file, POLICY, 1)
    monkeypatch.setattr(run_agent, "log", BrokenLog())
    monkeypatch.setattr(run_agent, "_POLICY_AGAIN", 0.0)

    errors = [OSError(ENOSPC, "full"), Retriable("the gateway reads nothing")]

    class Agent:
        def reload(self, policy: Policy) -> None:
            if errors:
                raise errors.pop()
            applied.append(policy)

    watched = PolicyFile(str(file))
    watch = run_agent.PolicyWatch(watched, cast(Any, Agent()), cast(Any, SimpleNamespace()))
    write(file, POLICY.replace("paris", "lyon"), 2)
    watch.look()
    assert watch.error == ""
    for error in ("Retriable", "OSError"):
        watch.look()
        assert f"not completely applied: internal error {error}" in watch.error
    monkeypatch.setattr(run_agent, "log", structlog.get_logger())
    watch.look()
    assert watch.error == ""
    assert [one.labels for one in applied] == [{"site": "lyon"}]
    watch.look()
    assert len(applied) == 1
    write(file, "dumps: [", 3)
    watch.look()
    watch.look()
    assert watch.error.startswith("the previous policy applies: ")


def write(file: Path, text: str, moment: int) -> None:
    """Replace a file's content, with another time of change."""
    file.touch(mode=0o644)
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


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_policy_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    """It takes effect within seconds. At the start, and as a change: the previous policy then continues to apply."""
    file = tmp_path / "policy.yml"
    (tmp_path / "secret").write_text("one")
    write(file, POLICY, 1)
    file.chmod(0o644)
    watched = PolicyFile(str(file))
    file.chmod(mode)
    with pytest.raises(UsageError, match=r"can be changed by other users.*chmod go-w"):
        PolicyFile(str(file))
    write(file, POLICY.replace("paris", "lyon"), 2)
    assert watched.changed() is None
    with pytest.raises(UsageError, match="can be changed by other users"):
        watched.changed()
    assert watched.policy.labels == {"site": "paris"}


def test_a_corrected_mode_is_noticed(tmp_path: Path) -> None:
    """The remedy of the error changes neither the content of the file nor the time of its last change."""
    file = tmp_path / "policy.yml"
    (tmp_path / "secret").write_text("one")
    write(file, POLICY, 1)
    watched = PolicyFile(str(file))
    write(file, POLICY.replace("paris", "lyon"), 2)
    file.chmod(0o666)
    assert watched.changed() is None
    with pytest.raises(UsageError, match="chmod go-w"):
        watched.changed()
    file.chmod(0o644)
    assert watched.changed() is None
    assert (read := watched.changed()) is not None
    assert (read.labels, watched.error) == ({"site": "lyon"}, "")


def test_a_file_that_could_not_be_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may fail for a moment, and no file changes when it works again. SIGHUP in that moment is not lost.

    The log has the error once."""
    file, secret, failing, lines = tmp_path / "policy.yml", tmp_path / "secret", [True], list[str]()
    secret.write_text("one")
    write(file, POLICY, 1)
    watched, applied = PolicyFile(str(file)), list[Policy]()
    agent = cast(Any, SimpleNamespace(reload=applied.append))
    watch = run_agent.PolicyWatch(watched, agent, cast(Any, SimpleNamespace()))
    real = Path.read_text

    def read_text(path: Path, *args: Any, **kwargs: Any) -> str:
        if failing[0] and path == secret:
            raise OSError(EIO, "input/output error")
        return real(path, *args, **kwargs)

    log = SimpleNamespace(error=lambda text, **_: lines.append(text), info=lambda *_, **__: None)
    monkeypatch.setattr(run_agent, "log", log)
    monkeypatch.setattr(Path, "read_text", read_text)
    watch.look(now=True)
    assert "input/output error" in watch.error
    watch.look()
    failing[0] = False
    watch.look()
    assert applied == [], "it is not read at every look"
    monkeypatch.setattr(run_agent, "_POLICY_AGAIN", 0.0)
    failing[0] = True
    watch.look(now=True)
    watch.look()
    failing[0] = False
    watch.look()
    assert (len(applied), watch.error, len(lines)) == (1, "", 1)
    watch.look()
    assert len(applied) == 1


@pytest.mark.parametrize("changed", ["policy.yml", "secret"])
@pytest.mark.parametrize("first", [True, False])
def test_a_change_while_the_files_are_read_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, first: bool
) -> None:
    """Also in the first read. Otherwise the agent would keep an old policy, or an old password."""
    file, secret = tmp_path / "policy.yml", tmp_path / "secret"
    write(file, POLICY, 1)
    write(secret, "one", 1)

    def slow(*args: Any, **kwargs: Any) -> Policy:
        found = read_policy(*args, **kwargs)
        if changed == "secret":
            write(secret, "two", 3)
        else:
            write(file, POLICY.replace("paris", "rome"), 3)
        return found

    with monkeypatch.context() as patch:
        if first:
            patch.setattr("ingest.agent.file_policy.read_policy", slow)
        watched = PolicyFile(str(file))
        patch.setattr("ingest.agent.file_policy.read_policy", slow)
        if not first:
            write(file, POLICY.replace("paris", "lyon"), 2)
            assert [watched.changed() for _ in range(2)] == [None, None]
    looks = [watched.changed() for _ in range(4)]
    [policy] = [one for one in looks if one is not None]
    shown = (policy.connections["shop-db"].password, policy.labels["site"])
    assert shown == (("two", "paris" if first else "lyon") if changed == "secret" else ("one", "rome"))


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
