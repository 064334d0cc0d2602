"""Digests of files that tests download."""

from __future__ import annotations

import hashlib
from pathlib import Path


def must_have_digest(file: Path, sha256: str) -> None:
    """Fail if a file does not have this SHA-256 digest, before anything of it is unpacked or run."""
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    assert found == sha256, f"{file.name} has the SHA-256 digest {found}, and not {sha256}"
