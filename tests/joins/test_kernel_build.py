"""The kernel builds wherever there is Java: with a JDK here, with only a runtime in test_kernel_bags.py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from joins.kernel import proc_kernel

STEPS = {"Router", "KeyedJoin", "Assemble", "Message"}


def compiled(folder: Path) -> set[str]:
    return {file.stem for file in (folder / "tailorbird" / "kernel").glob("*.class") if "$" not in file.name}


@pytest.mark.matrix  # `make setup` builds the kernel with a JDK's compiler if there is one
def test_kernel_is_built_by_javac(tmp_path: Path) -> None:
    """A JDK's compiler accepts the same sources."""
    javac = shutil.which("javac")
    if javac is not None:  # a machine without a JDK runs tests/joins/test_kernel_bags.py
        proc_kernel.with_javac(javac, tmp_path)
        assert compiled(tmp_path) >= STEPS


def test_kernel_is_built_once() -> None:
    """The jar of the same sources is found again, without a compiler."""
    assert proc_kernel.build(os.environ) == proc_kernel.jar() == proc_kernel.build({"PATH": ""})


def test_files_of_the_kernel_stay_small() -> None:
    """Files have one topic, and lines fit next to another file's."""
    assert {file.name: n for file in proc_kernel.sources() if (n := len(file.read_text().splitlines())) > 300} == {}
    long = [f"{file.name}:{n}" for file in proc_kernel.sources()
            for n, line in enumerate(file.read_text().splitlines(), 1) if len(line) > 120]  # fmt: skip
    assert long == []


@pytest.mark.long
def test_a_mistake_in_the_kernel_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's message is part of the error."""
    broken = tmp_path / "Broken.java"
    broken.write_text('package tailorbird.kernel;\npublic class Broken { int x = "text"; }\n')
    monkeypatch.setattr(proc_kernel, "sources", lambda: [broken])
    java = shutil.which("java")
    assert java is not None
    with pytest.raises(RuntimeError, match="can not be compiled"):
        proc_kernel.with_janino(java, tmp_path)
