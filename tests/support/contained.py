"""Run the commands of an image as a container engine does, in a plain root file system.

Each process has mount and process namespaces of its own, is the first process in them, has the image's user and no
capabilities, and cannot write to its root. It uses this machine's network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

USER = 10001
_SCRIPT = """\
set -e
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom; do
  : > "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"; mkdir -m 1777 "$root/dev/shm"
mount -t proc proc "$root/proc"
for file in hosts resolv.conf; do
  [ -e "$root/etc/$file" ] || : > "$root/etc/$file"; mount --bind "/etc/$file" "$root/etc/$file"
done
while [ "$1" != -- ]; do
  mkdir -p "$root$2"; mount --bind "$1" "$root$2"; [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"; shift 3
done
shift
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --inh-caps=-all \
  --bounding-set=-all env --ignore-environment "$@"
"""


class Container:
    """A root file system, the environment of its processes, and folders of this machine in it.

    `volumes` maps paths in the container to folders here, and whether the process may write to them."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        volumes: Mapping[str, tuple[Path, bool]],
        *,
        user: str = "10001:10001",
    ) -> None:
        assert user == f"{USER}:{USER}"
        self.root, self.environ, self.volumes = root, environ, volumes
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], log: Path) -> None:
        """Start a process whose output is appended to `log`."""
        with log.open("ab") as stream:
            self.process = subprocess.Popen(self._words(command), stdout=stream, stderr=stream)

    def run(self, command: Sequence[str], seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a process to its end."""
        return subprocess.run(self._words(command), capture_output=True, text=True, timeout=seconds, check=False)

    def stop(self, seconds: float = 60) -> int:
        """Send SIGTERM to the process, as a container engine does; return its exit code."""
        assert self.process is not None
        [inner] = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(inner), signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Kill the process if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)

    def _words(self, command: Sequence[str]) -> list[str]:
        volumes = [
            word
            for target, (source, writable) in self.volumes.items()
            for word in (str(source), target, "rw" if writable else "ro")
        ]
        environ = [f"{name}={value}" for name, value in self.environ.items()]
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
        return [*namespaces, "sh", "-c", _SCRIPT, "container", str(self.root), *volumes, "--", *environ, *command]


def writable_folder(folder: Path) -> Path:
    """Create a folder that belongs to the user of the images."""
    folder.mkdir(parents=True)
    shutil.chown(folder, USER, USER)
    return folder
