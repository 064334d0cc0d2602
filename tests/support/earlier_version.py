"""Earlier versions in folders of their own, so that a test can run them together with the present one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The last commit before packages and classes were renamed; its command is `python -m console`.
BEFORE_RENAMING = "bf263400"
MODULE = "console"
# The last commit of version 0.1.
VERSION_0_1 = "0187a3bd"


def check_out_earlier_version(folder: Path, commit: str = BEFORE_RENAMING) -> dict[str, str]:
    """Write the files of a commit below `folder`, build its join kernel, and return the environment in which Python
    runs it.

    The packages that it imports are those of the present environment. A clone without history cannot provide it:
    subprocess.CalledProcessError.
    """
    folder.mkdir()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "src"], check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    environ = {**os.environ, "PYTHONPATH": str(folder / "src")}
    subprocess.run([sys.executable, "-m", "joins.kernel.proc_kernel"], env=environ, cwd=folder, check=True)
    return environ
