"""Files and folders with data are closed to other users, whatever the umask is, and also if they existed before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.grammar.exposed import exposes
from cdc.process.file_private import create_private, private_folder
from cdc.process.file_topology import keep_versions
from cdc.topology.versions import Versions
from ingest.ledger.file_folder import LedgerFolder


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_folders_and_files_are_private(tmp_path: Path) -> None:
    folder, file = tmp_path / "a" / "b", tmp_path / "file"
    folder.mkdir(parents=True)
    file.touch(0o666)
    private_folder(folder)
    with create_private(file) as stream:
        stream.write("é")
    assert (mode(folder), mode(file), file.read_text(encoding="utf-8")) == (0o700, 0o600, "é")
    private_folder(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o700


def test_state_of_a_topology_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions contain queries, and the ledger hashes of rows."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    keep_versions("t", Versions())
    ledger = LedgerFolder(tmp_path, "t")
    assert ledger.take()
    ledger.release()
    assert mode(tmp_path / "versions") == mode(tmp_path / "ledger" / "t") == 0o700
    assert mode(tmp_path / "versions" / "t.json") == mode(tmp_path / "ledger" / "t" / "lock") == 0o600


def test_roots_secrets_may_be_readable_by_a_group() -> None:
    """As Kubernetes and systemd mount them for another user. All other files of secrets are for their owner alone."""
    assert [exposes(mode, owner=0, user=10001) for mode in (0o400, 0o440, 0o640)] == [False] * 3
    assert [exposes(mode, owner=0, user=10001) for mode in (0o444, 0o460, 0o450, 0o660, 0o604)] == [True] * 5
    for owner, user in ((10001, 10001), (0, 0), (7, 10001)):
        assert [exposes(mode, owner=owner, user=user) for mode in (0o600, 0o400, 0o640, 0o604)] == [
            False, False, True, True,
        ]  # fmt: skip
