"""The capture side needs no dependency of the other stages: it is installed alone, and names what is missing."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from cdc.model.extras import MODULES
from tests.support.wheels import OWN, built_wheel, installed, pip_of

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SAMPLE = ROOT / "tests" / "data" / "binlogs" / "pairs" / "northwind@m10.binlog.gz"
PAGES = (
    "tailorbird.web.dashboard.http_",
    "tailorbird.web.dashboard.guard.http_",
    "tailorbird.web.dashboard.pages.http_",
    "tailorbird.web.fleet.http_fleet_",
    "tailorbird.web.api.http_",
    "tailorbird.web.api.run_api",
)
ICEBERG = ("tailorbird.verify.table.iceberg_", "tailorbird.verify.explain.iceberg_")
ABSENT = (
    "pyspark",
    "fastapi",
    "uvicorn",
    "duckdb",
    "pandas",
    "pyarrow",
    "fastavro",
    "happybase",
    "pysolr",
    "kazoo",
    "sqlalchemy",
    "pyiceberg",
)

# modules of the capture side that need an extra
OF_EXTRAS = (
    "__main__", "http_api", "http_bounded", "http_oidc", "http_operators", "sql_reader", "sql_types", "sql_keys",
    "sql_assigner", "sql_catalog", "sql_tables",
)  # fmt: skip
# Imports every module of the capture side without any extra, then runs each command in a child of its own.
WITHOUT = """
import importlib, importlib.abc, json, os, pkgutil, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in set({absent!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
for package in ("cdc", "ingest"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith({extra!r}):
            importlib.import_module(module.name)
from tailorbird.__main__ import main
for number, words in enumerate(json.loads(sys.argv[1])):
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(f"{{number}}.{{stream}}", os.O_CREAT | os.O_WRONLY), stream)
        os.chdir(sys.argv[2])
        sys.argv = ["tailorbird", *words]
        main()
        sys.exit(0)
    open(f"{{number}}.code", "w").write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""

# Imports every module of some packages, with only some modules of the extras installed.
ONLY = """
import importlib, importlib.abc, pkgutil, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in set({absent!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
for package in {packages!r}:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__") and not module.name.startswith({but!r}):
            importlib.import_module(module.name)
"""
# modules of a requirement whose names differ from its own
BRINGS = {
    "happybase": {"happybase", "thriftpy2"},
    "opensearch-py": {"opensearchpy"},
    "kafka-python": {"kafka"},
    "fastapi": {"fastapi", "opentelemetry", "pydantic", "starlette"},
    "pandas": {"pandas", "numpy"},
    "confluent-kafka[schemaregistry]": {"authlib", "cachetools", "httpx2"},
    "pyiceberg": {"pyiceberg", "pydantic", "requests", "cachetools"},
    "protobuf": {"google"},
    "pyspark": {"pyspark", "py4j"},
}


@pytest.fixture
def sample(tmp_path: Path) -> str:
    """Return a binlog of a real server."""
    file = tmp_path / "binlog.000001"
    file.write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    return str(file)


def run(folder: Path, *commands: list[str]) -> list[subprocess.CompletedProcess[str]]:
    """Run commands in a process that has imported the capture side alone; `folder` receives their output."""
    script = WITHOUT.format(absent=sorted(MODULES), extra=OF_EXTRAS)
    words = [sys.executable, "-c", script, json.dumps(commands), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [
        subprocess.CompletedProcess(
            command, int((folder / f"{number}.code").read_text()),
            *((folder / f"{number}.{stream}").read_text() for stream in (1, 2)),
        )
        for number, command in enumerate(commands)
    ]  # fmt: skip


def test_the_capture_side_works_alone(sample: str, tmp_path: Path) -> None:
    """Its modules can be imported and its commands run."""
    said = {
        "capture": ["--help"],
        "TOPOLOGY": ["capture", "--help"],
        "is valid": ["validate", "topologies/shop.yml"],
        '"op"': ["binlog", "dump", sample],
    }
    for words, done in zip(said, run(tmp_path, *said.values()), strict=True):
        assert done.returncode == 0, done.stderr
        assert words in done.stdout


@pytest.mark.long
def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """One line names the extra to install, without a traceback."""
    extras = {
        "joins": ["join", "topologies/shop.yml"],
        "indexer": ["index", "run", "topologies/shop.yml"],
        "dashboard": ["dashboard", "topologies/shop.yml"],
    }
    for extra, done in zip(extras, run(tmp_path, *extras.values()), strict=True):
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert f"tailorbird[{extra}]" in done.stderr or "tailorbird[all]" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("extra", "packages", "but"),
    [
        ("joins", ["joins"], ("joins.stores.iceberg.iceberg_",)),
        ("iceberg", ["joins.stores.iceberg"], ()),
        ("indexer", ["indexer"], ()),
        ("gateway", ["ingest.gateway"], ()),
        ("poll", ["ingest.poll"], ()),
        ("formats", ["cdc.formats"], ()),
        ("dashboard", ["tailorbird.web.dashboard"], ()),
        ("console", ["tailorbird"], (*PAGES, *ICEBERG)),
    ],
)
def test_one_extra_installs_everything_its_stage_needs(extra: str, packages: list[str], but: tuple[str, ...]) -> None:
    """The extra that an error names is enough: every module of the stage can be imported with it alone."""
    names = {re.split("[<>=]", requirement)[0] for requirement in PROJECT["optional-dependencies"][extra]}
    brought = set[str]().union(*(BRINGS.get(name, {name}) for name in names))
    script = ONLY.format(absent=sorted(MODULES - brought), packages=packages, but=but)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_nothing_of_an_extra_is_needed_by_the_base() -> None:
    """The base does not need the packages of an extra."""
    base = {requirement.split(">")[0].split("=")[0] for requirement in PROJECT["dependencies"]}
    assert not base & {name for name in ABSENT if name}


def megabytes(folder: Path) -> float:
    """Return the installed size, without packages that every environment of Python has, and without compiled
    bytecode."""
    [packages] = folder.glob("python*/site-packages")
    files = (file for file in packages.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    own = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel")
    sizes = (file.stat().st_size for file in files if not file.relative_to(packages).parts[0].startswith(own))
    return sum(sizes) / 1024 / 1024


def modules_of_agent(python: Path) -> int:
    """Return how many modules an agent imports, which is most of its start."""
    count = "import sys, ingest.agent.run_agent; print(len(sys.modules))"
    return int(subprocess.run([str(python), "-c", count], check=True, capture_output=True, text=True, env=OWN).stdout)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_wheel_without_extras_captures(tmp_path: Path, sample: str) -> None:
    """The built wheel alone, in a separate environment, contains nothing of the other stages and decodes a binlog."""
    stale = ROOT / "build" / "lib" / "cdc" / "long_gone.py"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.touch()
    wheel = built_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as opened:
        assert not [name for name in opened.namelist() if name.endswith(stale.name)], "what an earlier build left"
    commands = installed(tmp_path / "alone", [str(wheel)])
    listed = subprocess.run(
        [*pip_of(tmp_path / "alone"), "list"], check=True, capture_output=True, text=True, env=OWN
    ).stdout
    assert not [name for name in ABSENT if f"\n{name} " in listed]
    assert megabytes(commands.parent / "lib") <= 100, "a database's host has room for so much"
    assert modules_of_agent(commands / "python") <= 900, "each takes about a millisecond of its start"
    command = str(commands / "tailorbird")
    dumped = subprocess.run([command, "binlog", "dump", sample], capture_output=True, text=True, env=OWN)
    assert dumped.returncode == 0, dumped.stderr
    assert dumped.stdout.count('"op"') > 0
    joined = subprocess.run(
        [command, "join", str(ROOT / "topologies" / "shop.yml")], capture_output=True, text=True, env=OWN
    )
    assert (joined.returncode, "tailorbird[joins]" in joined.stderr) == (2, True), joined.stderr
