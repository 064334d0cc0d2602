"""The version before 0.2 in a folder of its own, so that a test can run it beside the present one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The last commit before packages and classes were renamed.
COMMIT = "bf263400"
MODULE = "console"


def check_out_earlier_version(folder: Path) -> dict[str, str]:
    """Write the files of the earlier version below `folder`, build its join kernel, and return the environment in
    which `python -m console` runs it.

    The packages that it imports are those of the present environment. A clone without history cannot provide it:
    subprocess.CalledProcessError.
    """
    folder.mkdir()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", COMMIT, "src"], check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    environ = {**os.environ, "PYTHONPATH": str(folder / "src")}
    subprocess.run([sys.executable, "-m", "joins.kernel.proc_kernel"], env=environ, cwd=folder, check=True)
    return environ
