"""Convert runs to OpenLineage's events. They contain names, types, versions and reasons, never values of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from cdc.model.errors import TailorbirdError, TopologyError, UsageError
from cdc.openlineage.datasets import DIRECT, FieldOrigin, JobKind, LineageDataset, LineageJob

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.generated.base import DatasetFacet
    from openlineage.client.generated.column_lineage_dataset import InputField

NAME = "Tailorbird"
RunStep = Literal["START", "RUNNING", "COMPLETE", "FAIL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMoment:
    """One event of a run: what happened when, with the datasets that are known then. `reason` is that of a failure."""

    step: RunStep
    at: datetime
    inputs: Sequence[LineageDataset] = ()
    outputs: Sequence[LineageDataset] = ()
    reason: str = ""


def reason_of(error: Exception, kind: JobKind) -> str:
    """Return the text of an error that ends a run, without values of rows.

    Errors of a capture and of the configuration contain names only. The text of another error may come from Spark or
    from a server, and contain values: only the class and the remedy are sent. The process's log has the text."""
    if isinstance(error, TopologyError | UsageError) or (kind == "CAPTURE" and isinstance(error, TailorbirdError)):
        return str(error)
    hint = error.hint if isinstance(error, TailorbirdError) else ""
    return f"{type(error).__name__}: the log of the process has the reason" + (f"; {hint}" if hint else "")


def producer_of(version: str) -> str:
    """Return the URI of what creates the events."""
    return f"urn:{NAME.lower()}:{version}"


def event_of(job: LineageJob, run: str, moment: RunMoment, version: str) -> RunEvent:
    """Return the event of a moment of the run with the UUID `run`. `version` is Tailorbird's."""
    from openlineage.client import event_v2
    from openlineage.client.generated.base import JobFacet, RunFacet
    from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
    from openlineage.client.generated.job_type_job import JobTypeJobFacet
    from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet

    about_job: dict[str, JobFacet] = {
        "jobType": JobTypeJobFacet(processingType="STREAMING", integration=NAME.upper(), jobType=job.kind)
    }
    about_run: dict[str, RunFacet] = {"processing_engine": ProcessingEngineRunFacet(version=version, name=NAME)}
    if moment.reason:
        about_run["errorMessage"] = ErrorMessageRunFacet(message=moment.reason, programmingLanguage="PYTHON")
    return event_v2.RunEvent(
        eventType=event_v2.RunState[moment.step],
        eventTime=moment.at.isoformat(),
        run=event_v2.Run(runId=run, facets=about_run),
        job=event_v2.Job(namespace=job.namespace, name=job.name, facets=about_job),
        inputs=[_input(one) for one in moment.inputs],
        outputs=[_output(one) for one in moment.outputs],
        producer=producer_of(version),
    )


def _input(one: LineageDataset) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(one.name.namespace, one.name.name, facets=_columns(one))


def _output(one: LineageDataset) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet, Fields

    facets = _columns(one)
    if one.origins or one.influences:
        facets["columnLineage"] = ColumnLineageDatasetFacet(
            fields={name: Fields(inputFields=_inputs(origins)) for name, origins in one.origins.items() if origins},
            dataset=_inputs(one.influences),
        )
    return OutputDataset(one.name.namespace, one.name.name, facets=facets)


def _columns(one: LineageDataset) -> dict[str, DatasetFacet]:
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields

    if not one.fields:
        return {}
    numbered = enumerate(one.fields, start=1)
    fields = [SchemaDatasetFacetFields(name=f.name, type=f.type, ordinal_position=n) for n, f in numbered]
    return {"schema": SchemaDatasetFacet(fields=fields)}


def _inputs(origins: Sequence[FieldOrigin]) -> list[InputField]:
    """Return each input field once, with all the ways in which the output depends on it."""
    from openlineage.client.generated.column_lineage_dataset import InputField, Transformation

    found: dict[tuple[str, str, str], list[Transformation]] = {}
    for one in origins:
        way = Transformation(type="DIRECT" if one.how in DIRECT else "INDIRECT", subtype=one.how, masking=one.masked)
        found.setdefault((one.dataset.namespace, one.dataset.name, one.field), []).append(way)
    return [InputField(*name, transformations=ways) for name, ways in found.items()]
