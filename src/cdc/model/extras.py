"""Which extra of the distribution brings what: the capture side is installed alone, the rest by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.model.errors import UsageError

# what the capture side alone does not bring
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
    """Within, a module that is not there is a UsageError naming what to install: `extra`, which brings all that is used
    within, whichever other extras have the module too.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").split(".")[0]
        if module not in MODULES:
            raise
        remedy = f"pip install 'tailorbird[{extra}]'"
        raise UsageError(f"this needs {module}, which is not installed", remedy) from error
