"""One Spark application of many tables, before it has begun."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path
from joins.process.spark_application import Application

spark = Application("t", engines={"jvm"}, scratch=Path("nowhere"), together=True)
assert spark.exit_code() is None
print([name for name in sys.modules if name.startswith("pyspark")])
"""


def test_who_asks_how_the_jvm_is_imports_nothing_during_who_starts_it() -> None:
    """The process's main thread asks while a table's thread imports pyspark, which is not made for two at a time: the
    second one met it half made, and all tables ended."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
