"""The Python that Spark starts its workers with."""

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
    """An executable in `folder` that is this process's Python, with its PYTHONPATH; itself where none can be there.

    Spark puts its own copy of pyspark before all else that its workers import, a zip: of that Python keeps no bytecode,
    and every start compiles pyspark anew. The same pyspark is installed, or this process would not run.
    """
    script = folder.absolute() / "python"
    script.write_text(_SCRIPT.format(path=quote(os.environ.get("PYTHONPATH", "")), python=quote(sys.executable)))
    script.chmod(0o700)
    return script if os.access(script, os.X_OK) else Path(sys.executable)  # not where the folder is mounted noexec
