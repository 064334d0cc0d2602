"""The images start as their own user, without privileges, with a read-only root, and capture's is small.

`make check-images` builds them with buildah's chroot isolation from docker/Dockerfile (tests/images.py), and then runs
these tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.images import built, config_of, mounted, sizes
from tests.support.contained import Container, writable_folder
from tests.support.images_offer import TARGETS

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("buildah") is None or os.geteuid() != 0, reason="needs root and buildah"),
]
MOST_CAPTURE = 120  # MB
TOPOLOGY = Path(__file__).parents[1] / "topologies" / "shop.yml"


@pytest.mark.parametrize("target", TARGETS)
def test_a_container_is_restricted(target: str, tmp_path: Path) -> None:
    """The process has the fixed user and no capabilities. It can write to its state and /tmp, and to nothing else. Only
    joins have Java."""
    if not built(target):
        pytest.skip(f"make images: tailorbird-{target} is not built")
    etc = tmp_path / "etc"
    etc.mkdir()
    etc.chmod(0o755)
    shutil.copy(TOPOLOGY, etc / "topology.yml")
    config = config_of(target)
    environ = dict(word.split("=", 1) for word in config["Env"])
    volumes = {"/etc/tailorbird": (etc, False), "/var/lib/tailorbird": (writable_folder(tmp_path / "state"), True)}
    script = (
        "id -u; id -g; grep CapEff /proc/self/status; touch /tmp/x /var/lib/tailorbird/x || echo closed;"
        "for path in / /opt /etc /opt/tailorbird /usr /etc/tailorbird; do touch $path/x 2>/dev/null && echo open $path;"
        "done; command -v java pip gcc javac"
    )
    with mounted(target) as root:
        one = Container(root, environ, volumes, user=config["User"])
        lines = one.run(["sh", "-c", script]).stdout.split("\n")
        assert lines[:2] == ["10001", "10001"]
        assert lines[2].split() == ["CapEff:", "0000000000000000"]
        assert [line for line in lines[3:] if line] == (["/usr/bin/java"] if target == "join" else [])
        helped = one.run([*config["Entrypoint"], *config["Cmd"]])
        assert (helped.returncode, helped.stderr) == (0, "")
        read = one.run([*config["Entrypoint"], "validate", "/etc/tailorbird/topology.yml"])
        assert (read.returncode, "is valid" in read.stdout) == (0, True), read.stderr
        unhealthy = one.run(config["Healthcheck"]["Test"][1:])
        assert (unhealthy.returncode, "refused" in unhealthy.stderr) == (1, True), "nothing listens"


def test_the_image_of_capture_is_small() -> None:
    """Its layers after the common base (Debian and Python) have at most 120 MB."""
    if not built("capture"):
        pytest.skip("make images: tailorbird-capture is not built")
    whole, own = sizes("capture")
    print(f"tailorbird-capture: {whole} MB, {own} MB of them not in the common base")
    assert 0 < own <= MOST_CAPTURE
