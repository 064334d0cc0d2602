"""One Spark application for many tables, before it starts."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path
from joins.process.spark_application import Application

spark = Application("t", scratch=Path("nowhere"), together=True)
assert spark.exit_code() is None
print([name for name in sys.modules if name.startswith("pyspark")])
"""


def test_who_asks_how_the_jvm_is_imports_nothing_during_who_starts_it() -> None:
    """The main thread polls while a table's thread imports pyspark. Two concurrent imports once met a half-initialized
    module, which ended all tables."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
