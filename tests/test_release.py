"""Law: a version has one number everywhere, and a release has its notes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import yaml

from tests.release import CHART, ROOT, digests, notes, version

CHANGELOG = """# Changelog

## Unreleased

- later

## 0.2.0 (2026-11-28)

- new

## 0.1.0 (2026-11-27)

- first
"""


def test_every_file_names_the_same_version() -> None:
    """The package, the chart, the images, and the newest section of the changelog."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    [label] = re.findall(r'image\.version="([^"]+)"', (ROOT / "docker" / "Dockerfile").read_text())
    newest = re.findall(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert {chart["version"], chart["appVersion"], label, newest} == {version()}


def test_notes_are_one_section() -> None:
    """A version without a section is refused: a release has notes."""
    assert notes(CHANGELOG, "0.2.0") == "- new\n"
    assert notes(CHANGELOG, "0.1.0") == "- first\n"
    with pytest.raises(SystemExit, match="no section"):
        notes(CHANGELOG, "0.2")


def test_digests_are_those_of_the_files(tmp_path: Path) -> None:
    """As `sha256sum --check` reads them; the file itself is left out."""
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "SHA256SUMS").write_text("old")
    assert digests(tmp_path) == "".join(
        f"{hashlib.sha256(c).hexdigest()}  {n}\n" for n, c in (("a", b"1"), ("b", b"2"))
    )
