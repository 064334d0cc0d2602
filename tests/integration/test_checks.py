"""`checks:` on the real servers: metrics, `status` and the log report a difference while it exists."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from cdc.process.file_topology import load_topology
from tailorbird.operate.status.http_metrics import read_metrics
from tailorbird.verify.checks.kafka_runs import RunsReader
from tests.integration.test_index import TYPES, a_world, equal, row
from tests.integration.test_verify_index import PlantedWrites
from tests.support.ports import free_port
from tests.support.prometheus import prometheus
from tests.support.waiting import wait_for

# without servers, in `make test`: tests/tailorbird/test_checks.py
pytestmark = [pytest.mark.integration, pytest.mark.matrix]


def test_a_difference_is_reported_until_it_is_repaired(stack: object, tmp_path: Path) -> None:
    """A document is deleted: the next run finds it, `status` names the command that shows it and exits with 1, and the
    alert fires in Prometheus. When it is restored all is equal again. The process exits cleanly in the middle of a
    comparison.
    """
    with a_world(tmp_path) as world:
        world.file.write_text(f"{world.file.read_text()}checks: {{often: {{every: 1s, stage: index, sample: 1/2}}}}\n")
        codec = world.store_layout(1, **TYPES)
        world.start()
        world.write(codec, [row(n) for n in range(50)])
        equal(world)
        port = free_port()
        checks = world.tailorbird("checks", "--metrics-port", str(port))

        def metric(name: str) -> float:
            return read_metrics(port).get(f"tailorbird_check_{name}", -1.0)

        with closing(PlantedWrites(world, codec)) as plant, ExitStack() as closing_last:
            wait_for(lambda: metric("last_success_timestamp_seconds") > 0, "no run reports equality", 120)
            watching = closing_last.enter_context(prometheus(tmp_path, port))
            watching.wait()
            assert (metric("rows"), metric("differing_rows"), metric("interval_seconds")) == (50, 0, 1)
            document = plant.document(7)
            plant.post({"delete": {"id": plant.id(7)}})
            wait_for(lambda: metric("differing_rows") == 1, "the difference is not found", 120)
            labels = watching.wait("TailorbirdVerifyFoundDifference")["TailorbirdVerifyFoundDifference"]
            assert (labels["check"], labels["stage"], labels["table"]) == ("often", "index", "wide")
            process = world.tailorbird("status", "--json")
            output, _ = process.communicate(timeout=120)
            reported = {one["kind"]: one for one in map(json.loads, output.splitlines()) if one.get("kind") == "check"}
            assert (process.returncode, reported["check"]["state"]) == (1, "DIFFERENT")
            assert reported["check"]["look"] == f"tailorbird verify {world.file} --stage index --table wide"
            found = reported["check"]["checked"][0]["findings"]
            assert [(one["key"], one["difference"]) for one in found] == [({"id": 7}, "missing")]
            plant.post([document])
            wait_for(lambda: metric("differing_rows") == 0, "it is reported although it is repaired", 120)
            watching.wait()
        checks.terminate()
        assert checks.wait(60) == 0
        with RunsReader(load_topology(str(world.file))) as reader:
            assert reader.read()["often"].outcome == "equal"
