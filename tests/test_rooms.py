"""Rules for folders: the number of files, no import cycles, one class per class name. Each contract of import-linter
reports a planted violation."""

from __future__ import annotations

import ast
import shutil
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.test_checks import ROOT, run

SRC = ROOT / "src"
MOST_FILES = 20
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
ROOMS = [contract for contract in CONTRACTS if "containers" in contract]

# Public classes that share a name, with their modules. Remove an entry when its name becomes unique; add none.
SHARED: dict[str, list[str]] = {}


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def crowded(root: Path) -> Mapping[str, int]:
    """Return folders with more source files than the limit."""
    found: dict[str, int] = defaultdict(int)
    for path in root.rglob("*"):
        if path.suffix in {".py", ".java"}:
            found[str(path.parent.relative_to(root))] += 1
    return {folder: count for folder, count in found.items() if count > MOST_FILES}


def circle(root: Path) -> list[str]:
    """Return modules that import one another in a cycle, also for type checkers or within functions; empty without a
    cycle."""
    paths = {module_of(path, root): path for path in root.rglob("*.py")}
    graph = {module: set(imports(path, paths)) - {module} for module, path in paths.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def imports(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from (one for one in [name if name in known else node.module] if one in known)


def shared(root: Path) -> Mapping[str, list[str]]:
    """Return public classes that several modules define → those modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module_of(path, root))
    return {name: sorted(modules) for name, modules in sorted(found.items()) if len(modules) > 1}


def test_no_folder_has_too_many_files() -> None:
    """A folder can be read at a glance."""
    assert crowded(SRC) == {}


def test_imports_have_no_cycle() -> None:
    """Each module can be read, and loaded, after those it imports."""
    assert circle(SRC) == []


def test_class_names_are_unique() -> None:
    """No class has the name of another one; a class that was renamed leaves the list above."""
    assert shared(SRC) == SHARED


def test_a_planted_fault_is_found(tmp_path: Path) -> None:
    """The three rules report planted violations."""
    room = tmp_path / "joins" / "steps"
    room.mkdir(parents=True)
    for number in range(MOST_FILES):
        (room / f"step{number}.py").touch()
    assert (crowded(tmp_path), circle(tmp_path), shared(tmp_path)) == ({}, [], {})
    (room / "Step.java").touch()
    assert crowded(tmp_path) == {"joins/steps": MOST_FILES + 1}
    (room / "step0.py").write_text("from joins.steps.step1 import x\n\n\nclass Step: ...\n")
    (room / "step1.py").write_text("def f():\n    from joins.steps import step0\n\n\nclass Step: ...\n")
    assert set(circle(tmp_path)) == {"joins.steps.step0", "joins.steps.step1"}
    assert shared(tmp_path) == {"Step": ["joins.steps.step0", "joins.steps.step1"]}


def upwards() -> Iterator[tuple[str, str, str]]:
    """Return each contract with a file and its source: the lowest folder imports the highest."""
    yield CONTRACTS[0]["name"], "cdc/model/planted.py", "import joins\n"
    for contract in ROOMS:
        (package,), layers = contract["containers"], contract["layers"]
        highest = next(layer for layer in layers if layer != "__main__").split(" | ")[0]
        lowest = layers[-1].split(" | ")[0]
        path = f"{package.replace('.', '/')}/{lowest}"
        file = f"{path}/planted.py" if (SRC / path).is_dir() else f"{path}.py"
        yield contract["name"], file, f"import {package}.{highest}\n"


def sideways() -> Iterator[tuple[str, str, str]]:
    """Return each contract with a folder that imports one it must not import."""
    yield CONTRACTS[0]["name"], "joins/query/planted.py", "import indexer\n"
    for contract in ROOMS:
        (package,) = contract["containers"]
        for layer in contract["layers"]:
            rooms = layer.split(" | ")
            if len(rooms) > 1:
                source = f"import {package}.{rooms[1]}\n"
                yield contract["name"], f"{package.replace('.', '/')}/{rooms[0]}/planted.py", source


def unnamed() -> Iterator[tuple[str, str, str]]:
    """Return each contract with a folder that it does not list."""
    for contract in ROOMS:
        (package,) = contract["containers"]
        yield contract["name"], f"{package.replace('.', '/')}/planted.py", ""


@pytest.mark.parametrize("plant", [upwards, sideways, unnamed])
def test_every_contract_reports_a_violation(
    tmp_path: Path, plant: Callable[[], Iterator[tuple[str, str, str]]]
) -> None:
    """A violation of every contract is planted into a copy of the sources: each contract is reported as broken."""
    shutil.copytree(SRC, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.jar"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    planted = list(plant())
    for _, file, source in planted:
        with (tmp_path / "src" / file).open("a") as text:
            text.write(source)
    result = run(tmp_path, "lint-imports", "--no-cache")
    kept = {name for name, _, _ in planted if f"{name} BROKEN" not in " ".join(result.stdout.split())}
    assert (result.returncode != 0, kept) == (True, set()), result.stdout + result.stderr
