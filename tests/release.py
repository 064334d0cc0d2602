"""Collect the files of a release in a folder: `python -m tests.release HELM AGENT_FILE TARGET [--without-images]`.

The wheel, the sources, the agent in one file, the images, the Helm chart, the list of all parts (SBOM), the release
notes, and the digests of all of them. Nothing is published."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.images import built
from tests.support.images_offer import TARGETS

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "tailorbird"


def version() -> str:
    """Return the version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def notes(changelog: str, of: str) -> str:
    """Return the section of a version in the changelog, without its heading. Raises SystemExit if there is none."""
    found = re.search(rf"^## {re.escape(of)} \(\d{{4}}-\d\d-\d\d\)\n+(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no section `## {of} (DATE)`: write it, or correct the version")
    return found[1].rstrip() + "\n"


def digests(folder: Path) -> str:
    """Return the SHA-256 of each file, as `sha256sum --check` reads it."""
    files = sorted(one for one in folder.iterdir() if one.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("helm", type=Path)
    parser.add_argument("agent_file", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--without-images", action="store_true", help="for a machine that cannot build them")
    options = parser.parse_args(arguments)
    name, target = f"tailorbird-{version()}", options.target
    text = notes((ROOT / "CHANGELOG.md").read_text(), version())
    if _output("git", "status", "--porcelain"):
        raise SystemExit("the checkout has changes that are not committed: commit or remove them")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "release-notes.md").write_text(text)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    _run(*wheel, "--wheel-dir", target, ROOT)
    sources = _output("git", "archive", "--format=tar", f"--prefix={name}/", "HEAD")
    (target / f"{name}.tar.gz").write_bytes(gzip.compress(sources, mtime=0))
    shutil.copy(options.agent_file, target / f"{name}-agent")
    _run(options.helm, "package", CHART, "--destination", target)
    locks = sorted(str(one.relative_to(ROOT)) for one in (ROOT / "locks").glob("*.txt"))
    (target / "sbom.json").write_bytes(_output(sys.executable, "-m", "tailorbird.devtools.stack.file_sbom", *locks))
    if not options.without_images:
        for image in TARGETS:
            _save(image, target / f"{name}-{image}.tar.gz")
    (target / "SHA256SUMS").write_text(digests(target))
    for one in sorted(target.iterdir()):
        print(f"{one.stat().st_size / 1e6:9.1f} MB  {one}")
    return 0


def _save(image: str, target: Path) -> None:
    """Write an image as an archive that `docker load` and `podman load` read."""
    archive = target.with_suffix("")
    if built(image):
        _run(
            "buildah",
            "push",
            "--quiet",
            f"localhost/tailorbird-{image}",
            f"docker-archive:{archive}:tailorbird-{image}:{version()}",
        )
    else:
        _run("docker", "save", "--output", archive, f"tailorbird-{image}")
    _run("gzip", "--no-name", archive)


def _run(*command: str | Path) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def _output(*command: str) -> bytes:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout


if __name__ == "__main__":
    sys.exit(main())
