"""Open an Iceberg catalog and its files, and turn their errors into those of `cdc.model.errors`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs as fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.stored.lakehouse import IcebergCatalog


class CommitConflict(Exception):
    """Another process has committed the table since it was read. Nothing was committed."""


class MissingFile(Fatal):
    """A file does not exist. It is lost, or another process has removed a run since its table was read."""


@contextmanager
def translated(catalog: IcebergCatalog) -> Iterator[None]:
    """Raise errors within the block as those of `cdc.model.errors`, and a lost race as `CommitConflict`.

    After a Retriable, the last commit may have happened."""
    try:
        yield
    except (CommitFailedException, TableAlreadyExistsError) as error:
        raise CommitConflict(str(error)) from error
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise UsageError(f"iceberg.uri: {_first_line(error)}", "see docs/iceberg.md for addresses") from error
    except PermissionError as error:
        raise UsageError(f"{catalog}: {_first_line(error)}", "allow reading and writing the warehouse") from error
    except FileNotFoundError as error:
        what = f"{catalog}: a file is missing: {_first_line(error)}"
        raise MissingFile(what, "`run --rebuild` builds the table") from error
    except (DBAPIError, CommitStateUnknownException, OSError) as error:
        raise Retriable(f"{catalog}: {_first_line(error)}", "is the catalog's database running?") from error


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error  # the driver's error, without the statement
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def warehouse_of(catalog: IcebergCatalog) -> str:
    """Return the URL of the warehouse. A path is made absolute, because tables store whole locations."""
    if "://" in catalog.warehouse:
        return catalog.warehouse.rstrip("/")
    return f"file://{os.path.abspath(catalog.warehouse)}"


def opened(catalog: IcebergCatalog) -> Catalog:
    """Open the catalog, and create its tables and the two namespaces if they are missing."""
    with translated(catalog):
        if catalog.uri.startswith("sqlite:///"):
            os.makedirs(os.path.dirname(os.path.abspath(catalog.uri.removeprefix("sqlite:///"))), exist_ok=True)
        found = load_catalog(
            "tailorbird", type="sql", uri=catalog.uri, warehouse=warehouse_of(catalog), **_properties(catalog)
        )
        for namespace in (catalog.namespace, catalog.rows):
            if not found.namespace_exists(namespace):
                try:
                    found.create_namespace(namespace)
                except NamespaceAlreadyExistsError:
                    continue  # another process was faster
        return found


def _properties(catalog: IcebergCatalog) -> dict[str, str]:
    return {**dict(catalog.properties), "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}


def files_of(catalog: IcebergCatalog) -> PyArrowFileIO:
    """Return access to the files of the warehouse, for a task that does not know the catalog's database."""
    return PyArrowFileIO(_properties(catalog))


def write_staged(catalog: IcebergCatalog, folder: str, rows: pa.Table) -> None:
    """Write rows to a new file of a folder. Its name contains its size, so that a torn file is recognized."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    content = sink.getvalue()
    with translated(catalog):
        output = files_of(catalog).new_output(f"{folder}/{content.size}-{uuid.uuid4().hex}.arrow")
        with output.create(overwrite=True) as stream:
            stream.write(content)


def check_warehouse(catalog: IcebergCatalog) -> None:
    """Open the catalog, then write a file in its warehouse and delete it. Raises the errors of `translated`."""
    opened(catalog)
    with translated(catalog):
        files = files_of(catalog)
        location = f"{warehouse_of(catalog)}/{uuid.uuid4().hex}.check"
        try:
            with files.new_output(location).create() as stream:
                stream.write(b"")
        except (FileNotFoundError, NotADirectoryError) as error:
            what = f"{catalog}: the warehouse cannot be created: {_first_line(error)}"
            raise UsageError(what, "create the folder, or correct iceberg.warehouse") from error
        files.delete(location)


def read_staged(catalog: IcebergCatalog, folder: str, schema: pa.Schema) -> pa.Table:
    """Return the rows of all whole files of a folder."""
    with translated(catalog):
        system, path = _located(catalog, folder)
        found: Sequence[fs.FileInfo] = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        whole = [one for one in found if one.base_name.partition("-")[0] == str(one.size)]
        tables = []
        for one in whole:
            with system.open_input_file(one.path) as source:
                tables.append(pa.ipc.open_file(source).read_all())
        return pa.concat_tables([schema.empty_table(), *tables])


def remove_folder(catalog: IcebergCatalog, folder: str) -> None:
    """Delete a folder and its files, if it exists."""
    with translated(catalog):
        system, path = _located(catalog, folder)
        if system.get_file_info(path).type == fs.FileType.Directory:
            system.delete_dir(path)


def _located(catalog: IcebergCatalog, location: str) -> tuple[fs.FileSystem, str]:
    scheme, netloc, path = PyArrowFileIO.parse_location(location)
    return files_of(catalog).fs_by_scheme(scheme, netloc), path


def remove_files(table: Table, paths: Iterator[str] | Sequence[str]) -> int:
    """Delete files that no table needs. One that is missing was deleted before. Return how many were deleted."""
    deleted = 0
    for path in paths:
        try:
            table.io.delete(path)
            deleted += 1
        except FileNotFoundError:
            continue
    return deleted
