"""Which extra of the distribution brings what: the capture side is installed alone, the rest by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.words.errors import UsageError

# module → the smallest extra that has it
_EXTRAS = {
    "pyspark": "joins",
    "py4j": "joins",
    "pandas": "joins",
    "numpy": "joins",
    "pyarrow": "joins",
    "google": "indexer",
    "nicegui": "dashboard",
    "starlette": "dashboard",
    "kafka": "console",
    "duckdb": "console",
    "happybase": "joins",
    "thriftpy2": "joins",
    "kazoo": "indexer",
    "pysolr": "all",
    "requests": "all",
}


@contextmanager
def extras_named() -> Iterator[None]:
    """Within, a module that an extra would bring and that is not there is a UsageError naming what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").split(".")[0]
        if module not in _EXTRAS:
            raise
        remedy = f"pip install 'tailorbird[{_EXTRAS[module]}]'"
        raise UsageError(f"this needs {module}, which is not installed", remedy) from error
