"""The test servers from Debian come from the configured mirror, and no file names a registry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ingest.binlog.binlog_servers import debian_mirror

ROOT = Path(__file__).parents[3]
SUFFIXES = {".py", ".yml", ".yaml", ".toml", ".txt", ".sh", ".xml", ".properties", ".json", ".java", ".go", ".mod"}


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ("deb http://mirror.example/debian bookworm main\n", "http://mirror.example/debian"),
        ("deb [arch=amd64] https://m.example:8081/debian/ sid main", "https://m.example:8081/debian"),
        (
            "Types: deb\n# http://old.example/debian\nURIs: http://new.example/debian\nSuites: a\n",
            "http://new.example/debian",
        ),
    ],
)
def test_the_machines_own_mirror_is_used(sources: str, mirror: str) -> None:
    """A machine with a mirror reaches nothing else, and the project contains no address of a mirror."""
    assert debian_mirror(sources) == mirror


@pytest.mark.parametrize("sources", ["", "URIs: http://m.example/debian-security\n"])
def test_a_machine_without_an_archive_is_refused(sources: str) -> None:
    with pytest.raises(LookupError, match="add one to the sources of apt"):
        debian_mirror(sources)


# hosts that files must name: of XML's vocabularies
PUBLIC = {"ant.apache.org", "maven.apache.org", "json-schema.org", "www.w3.org", "www.eclipse.org", "xmlns.jcp.org"}
LOCAL = re.compile(r"127(\.0\.0\.1)?|localhost|[a-z]+|[a-z.-]+\.example(\.(com|org))?|.*[{$<].*")


def test_no_registry_is_named() -> None:
    """Packages are fetched as the machine's own settings of pip, npm, Maven and apt say."""
    rooms = ("src", "tests", "benchmarks", "docker", "docs", "examples", "topologies")
    files = [path for room in rooms for path in (ROOT / room).rglob("*")] + list(ROOT.glob("*"))
    read = [path for path in files if path.suffix in SUFFIXES or path.name == "Makefile"]
    assert len(read) > 300
    named = {
        f"{path.relative_to(ROOT)}: {host}"
        for path in read
        if path.is_file()
        for host in re.findall(r"https?://(?:[^/@\s'\"]*@)?([^/:\s'\"`)\\]+)", path.read_text(errors="replace"))
        if host[0].isalnum() and host not in PUBLIC and not LOCAL.fullmatch(host)
    }
    assert not named
