"""The demo finds the sources of the Debezium program in the checkout, wherever its own module is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailorbird.devtools.demo import proc_debezium


def test_the_program_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Maven builds it from the checkout, and its classes and libraries are run."""
    built = list[Path]()
    monkeypatch.setattr(proc_debezium, "build_with_maven", lambda pom, folder: built.append(pom))
    command = proc_debezium.debezium_command(tmp_path, Path("/java"))
    assert [pom.exists() for pom in built] == [True]
    assert command[0] == "/java"
    assert command[-1] == "CaptureBench"
