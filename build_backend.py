"""setuptools, and the join kernel's jar in every wheel: built from source by whatever Java the machine has.

An editable install leaves it to `make setup`, so that pip need not bring a second pyspark along. The same sources and
tools make the same bytes: dates and modes of files in the checkout are left out (docs/security.md, Supply chain).
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # the hooks that are not ours

_DATE, _MODE = (2020, 1, 1, 0, 0, 0), 0o100644


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What a wheel is built with: pyspark's jars are what the kernel is compiled against."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), "pyspark==4.2.0"]


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """The wheel, with the kernel's jar."""
    root = Path(__file__).parent
    # setuptools copies into what an earlier build left there, and the wheel has modules that are no more
    shutil.rmtree(root / "build" / "lib", ignore_errors=True)
    sys.path.insert(0, str(root / "src"))
    from joins.kernel.proc_kernel import build

    build()
    name = str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
    _reproducible(Path(wheel_directory) / name)
    return name


def _reproducible(wheel: Path) -> None:
    """Write a wheel again, each file with the same date and mode."""
    new = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(new, "w") as packed:
        for name in old.namelist():
            file = zipfile.ZipInfo(name, _DATE)
            file.external_attr, file.compress_type = _MODE << 16, zipfile.ZIP_DEFLATED
            packed.writestr(file, old.read(name))
    new.replace(wheel)
