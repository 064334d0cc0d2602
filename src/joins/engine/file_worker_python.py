"""Provide the Python command with which Spark starts its workers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote

_SCRIPT = """#!/bin/sh
export PYTHONPATH={path}
exec {python} "$@"
"""


def worker_python(folder: Path) -> Path:
    """Return a script in `folder` that runs this Python with its PYTHONPATH, or this Python if that is impossible.

    Otherwise Spark's zipped pyspark would come first on the workers' path. Python caches no bytecode for a zip, so
    every start would compile pyspark again."""
    script = folder.absolute() / "python"
    script.write_text(_SCRIPT.format(path=quote(os.environ.get("PYTHONPATH", "")), python=quote(sys.executable)))
    script.chmod(0o700)
    return script if os.access(script, os.X_OK) else Path(sys.executable)  # the folder may be mounted noexec
