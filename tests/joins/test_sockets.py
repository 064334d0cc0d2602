"""The folder of the sockets between Spark and its Python workers: nobody else may enter it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from joins.engine.file_sockets import unix_sockets

SCRATCH = Path("a", "join")


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tb") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def folder_of(settings: object) -> Path:
    assert isinstance(settings, dict)
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    return Path(settings["spark.python.unix.domain.socket.dir"])


def test_the_folder_is_private(temporary: Path) -> None:
    """Spark asks nobody who connects for a secret, and runs what it receives."""
    settings = unix_sockets(SCRATCH)
    assert folder_of(settings).parent == temporary
    assert stat.S_IMODE(folder_of(settings).stat().st_mode) == 0o700


def test_the_folder_ends_with_the_process(temporary: Path) -> None:
    """Sessions that follow each other in one process have one JVM, which keeps the folder of the first."""
    program = "from pathlib import Path; from joins.engine.file_sockets import unix_sockets as made\n"
    program += "print(Path(made(Path('a', 'join'))['spark.python.unix.domain.socket.dir']).exists())"
    environ = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert list(temporary.iterdir()) == []


def test_a_killed_process_leaves_at_most_one_folder(temporary: Path) -> None:
    left = folder_of(unix_sockets(SCRATCH)) / ".old.sock"
    left.touch()
    assert folder_of(unix_sockets(SCRATCH)) == left.parent
    assert not left.exists()
    assert folder_of(unix_sockets(Path("another", "join"))) != left.parent
    assert len(list(temporary.iterdir())) == 2


@pytest.mark.parametrize("what", ["open", "link", "file"])
def test_a_folder_of_others_is_not_used(temporary: Path, what: str) -> None:
    folder = folder_of(unix_sockets(SCRATCH))
    folder.rmdir()
    if what == "open":
        folder.mkdir()
        os.chmod(folder, 0o777)
    elif what == "link":
        (temporary / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(temporary / "elsewhere")
    else:
        folder.touch()
    assert unix_sockets(SCRATCH) == {}


def test_a_path_too_long_for_a_socket(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark could not start a worker."""
    deep = temporary / ("d" * 60)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert unix_sockets(SCRATCH) == {}
