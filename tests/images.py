"""Build the images without Docker: `python -m tests.images [TARGET …]`; needs root, buildah and mmdebstrap.

buildah runs the steps of docker/Dockerfile in plain root file systems (chroot). No image registry is needed: if the
base is not in buildah's store, it is made from Debian's packages, under the base's name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.images_offer import DOCKERFILE, TARGETS

ROOT = Path(__file__).parents[1]
# What Debian's slim images leave out
_SLIM = ("exclude=/usr/share/man/*", "exclude=/usr/share/doc/*", "exclude=/usr/share/locale/*")
_CERTIFICATES = Path("/usr/local/share/ca-certificates")  # of this machine's network


def base_name() -> str:
    """Return the name of the base in the Dockerfile."""
    [name] = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE.read_text(), re.MULTILINE)
    return str(name)


def build(target: str) -> None:
    """Build a target as `localhost/tailorbird-TARGET`; steps that did not change are taken from earlier builds."""
    command = ["buildah", "bud", "--isolation", "chroot", "--format", "docker", "--layers", "--pull=never"]
    command += ["--file", str(DOCKERFILE), "--target", target, "--tag", f"tailorbird-{target}", str(ROOT)]
    subprocess.run(command, check=True)


def provide_base() -> None:
    """Make the base from Debian's packages unless it is in the store."""
    name = base_name()
    if _stored(name):
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "base.tar"
        options = [f"--dpkgopt=path-{one}" for one in (*_SLIM, "include=/usr/share/doc/*/copyright")]
        # without a mirror it takes Debian's own, with its security updates
        command = ["mmdebstrap", "--quiet", "--variant=minbase", *options, "bookworm", str(archive)]
        subprocess.run(command, check=True)
        made = _output("from", "scratch")
        _output("add", "--quiet", made, str(archive), "/")
        own = sorted(map(str, _CERTIFICATES.glob("*.crt")))
        if own:
            _output("add", "--quiet", made, *own, str(_CERTIFICATES))
        _output("commit", "--quiet", "--format", "docker", "--rm", made, name)


def built(target: str) -> bool:
    """Return whether an image is in buildah's store."""
    return _stored(f"localhost/tailorbird-{target}")


def _stored(name: str) -> bool:
    command = ["buildah", "inspect", "--type", "image", name]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def mounted(target: str) -> Iterator[Path]:
    """Context manager: the root file system of an image, in a folder."""
    container = _output("from", "--pull=never", f"localhost/tailorbird-{target}")
    try:
        yield Path(_output("mount", container))
    finally:
        _output("rm", container)


def config_of(target: str) -> dict[str, Any]:
    """Return the configuration of an image, as `docker image inspect` shows it."""
    found = json.loads(_output("inspect", "--type", "image", f"localhost/tailorbird-{target}"))
    config: dict[str, Any] = found["Docker"]["config"]
    return config


def sizes(target: str) -> tuple[int, int]:
    """Return the megabytes of an image, and how many of them are not in the common base (target `base`)."""
    common = {layer["digest"] for layer in _layers("base")}
    layers = _layers(target)
    own = sum(layer["size"] for layer in layers if layer["digest"] not in common)
    return sum(layer["size"] for layer in layers) // 1_000_000, own // 1_000_000


def _layers(target: str) -> list[dict[str, Any]]:
    manifest = json.loads(_output("inspect", "--type", "image", f"localhost/tailorbird-{target}"))["Manifest"]
    layers: list[dict[str, Any]] = json.loads(manifest)["layers"]
    return layers


def _output(*arguments: str) -> str:
    return subprocess.run(["buildah", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def main(targets: Sequence[str]) -> None:
    """Build images and print their sizes."""
    provide_base()
    for target in ("base", *(targets or TARGETS)):
        build(target)
    for target in targets or TARGETS:
        whole, own = sizes(target)
        print(f"tailorbird-{target}: {whole} MB, {own} MB of them not in the common base")


if __name__ == "__main__":
    main(sys.argv[1:])
