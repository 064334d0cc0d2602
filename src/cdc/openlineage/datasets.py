"""Describe the jobs of a topology and their datasets, as values that `cdc.openlineage.events` converts to events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

JobKind = Literal["CAPTURE", "JOIN", "INDEX"]
# how a field of an output depends on one of an input: the subtypes of OpenLineage's facet `columnLineage`
Direct = Literal["IDENTITY", "TRANSFORMATION", "AGGREGATION"]
Indirect = Literal["JOIN", "GROUP_BY", "FILTER", "SORT", "WINDOW"]
Dependence = Direct | Indirect
DIRECT: tuple[Dependence, ...] = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
MOST_DATASETS = 500  # of the inputs or the outputs of an event, so that one of a large database stays below some MiB


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DatasetName:
    """The name of a dataset: `namespace` is the server that contains it, as a URL without login."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetField:
    """A column or field of a dataset, with its type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FieldOrigin:
    """A field of an input on which an output depends. `masked`: a mask hides the values."""

    dataset: DatasetName
    field: str
    how: Dependence
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageDataset:
    """An input or output of a job. Without `fields`, its columns are not known yet.

    `origins` are the origins of each field of an output. `influences` are those that decide which rows it has."""

    name: DatasetName
    fields: tuple[DatasetField, ...] = ()
    origins: Mapping[str, Sequence[FieldOrigin]] = field(default_factory=dict)
    influences: Sequence[FieldOrigin] = ()


Sides = tuple[tuple[LineageDataset, ...], tuple[LineageDataset, ...]]  # the inputs and outputs of a job


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageJob:
    """A job: `namespace` and `name` identify it."""

    namespace: str
    name: str
    kind: JobKind


def job_of(topology: str, kind: JobKind, part: str, environ: Mapping[str, str]) -> LineageJob:
    """Return the job of a process: `part` is its source, table or index.

    Its namespace is OPENLINEAGE_NAMESPACE, by default the topology's name."""
    namespace = environ.get("OPENLINEAGE_NAMESPACE", "").strip() or topology
    return LineageJob(namespace=namespace, name=f"{topology}.{kind.lower()}.{part}", kind=kind)


def unchanged(
    source: DatasetName, target: DatasetName, fields: Sequence[DatasetField], masked: Iterable[str] = ()
) -> LineageDataset:
    """Return an output whose fields are those of an input with the same names, except that some are `masked`."""
    hidden = frozenset(masked)
    origins = {
        one.name: (FieldOrigin(dataset=source, field=one.name, how="IDENTITY"),)
        if one.name not in hidden
        else (FieldOrigin(dataset=source, field=one.name, how="TRANSFORMATION", masked=True),)
        for one in fields
    }
    return LineageDataset(name=target, fields=tuple(fields), origins=origins)


def merged_datasets(found: Iterable[LineageDataset]) -> tuple[LineageDataset, ...]:
    """Return the datasets by name, each once: of a dataset that several tables share, the fields are left out.

    Of more than `MOST_DATASETS`, only the first ones are returned."""
    by_name: dict[DatasetName, LineageDataset] = {}
    for one in found:
        known = by_name.get(one.name)
        by_name[one.name] = one if known in (None, one) else replace(one, fields=(), origins={}, influences=())
    return tuple(by_name[name] for name in sorted(by_name)[:MOST_DATASETS])
