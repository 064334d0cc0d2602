"""Optional dependencies (extras) of the package: a missing one becomes an error that says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.model.errors import UsageError

# packages that the capture side alone does not install
MODULES = frozenset(
    {
        "authlib",
        "cachetools",
        "duckdb",
        "fastapi",
        "fastavro",
        "happybase",
        "httpx2",
        "joserfc",
        "kazoo",
        "numpy",
        "openlineage",
        "opensearchpy",
        "opentelemetry",
        "pandas",
        "py4j",
        "pyarrow",
        "pydantic",
        "pyiceberg",
        "pymysqlreplication",
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
    """Turn ModuleNotFoundError within the block into a UsageError that says `pip install 'tailorbird[extra]'`.

    `extra` provides everything that the block imports. Modules outside of `MODULES` raise ModuleNotFoundError as usual.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").split(".")[0]
        if module not in MODULES:
            raise
        remedy = f"pip install 'tailorbird[{extra}]'"
        raise UsageError(f"this needs {module}, which is not installed", remedy) from error
