"""Extras of the distribution: the capture side is installed alone, the rest by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.model.errors import UsageError

# packages that the capture side alone does not install
MODULES = frozenset(
    {
        "duckdb",
        "fastapi",
        "fastavro",
        "happybase",
        "kafka",
        "kazoo",
        "nicegui",
        "numpy",
        "pandas",
        "py4j",
        "pyarrow",
        "pydantic",
        "pysolr",
        "pyspark",
        "requests",
        "sqlalchemy",
        "starlette",
        "thriftpy2",
        "uvicorn",
    }
)


@contextmanager
def extras_named(extra: str) -> Iterator[None]:
    """Turn a missing module within the block into a UsageError that names the extra to install: `extra`, which provides
    everything used within, even if other extras provide the module, too."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").split(".")[0]
        if module not in MODULES:
            raise
        remedy = f"pip install 'tailorbird[{extra}]'"
        raise UsageError(f"this needs {module}, which is not installed", remedy) from error
