"""Run a private Kafka of several brokers, for benchmarks with more partitions than one broker may hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cdc.model.artefacts import bundle_folder
from cdc.model.brokers import Brokers
from cdc.model.errors import TailorbirdError
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.service_spec import JVM_ENVIRON
from tailorbird.devtools.stack.services import KAFKA_CLUSTER_ID
from tailorbird.operate.probes.kafka_probe import kafka_problem

_HOST = "127.0.0.1"
_STARTS = 60.0  # seconds


@contextmanager
def brokers_running(
    cache: Path, home: Path, port: int, count: int, heap: int, settings: Mapping[str, str]
) -> Iterator[str]:
    """Run `count` brokers with `heap` MiB each, of which the first is also the controller; yield their addresses.

    They listen on `port` and the following ports; the controller has the last one. Their data is removed. `settings`
    are further ones of each broker.
    """
    shutil.rmtree(home, ignore_errors=True)
    java = find_java(cache, os.environ, silent)
    jvm = [str(java), "-XX:+UseSerialGC", "-cp", f"{bundle_folder(cache, 'kafka')}/*"]
    addresses = [f"{_HOST}:{port + number}" for number in range(count)]
    with ExitStack() as running:
        running.callback(shutil.rmtree, home, ignore_errors=True)
        for number, address in enumerate(addresses):
            folder = home / f"broker-{number + 1}"
            folder.mkdir(parents=True)
            file, log = folder / "server.properties", folder / "server.log"
            further = "".join(f"{name}={value}\n" for name, value in settings.items())
            file.write_text(_properties(folder, number + 1, address, f"{_HOST}:{port + count}") + further)
            with log.open("wb") as output:
                format_data = ["kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER_ID, "-c", str(file)]
                subprocess.run([*jvm, *format_data], check=True, stdout=output, stderr=output)
                process = subprocess.Popen(
                    [*jvm[:1], f"-Xmx{heap}m", *jvm[1:], "kafka.Kafka", str(file)],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **JVM_ENVIRON},
                )  # fmt: skip
            running.callback(process.wait)
            running.callback(process.kill)
        deadline = time.monotonic() + _STARTS
        while problem := next(filter(None, map(kafka_problem, map(Brokers, addresses))), None):
            if time.monotonic() > deadline:
                raise TailorbirdError(f"Kafka does not start: {problem}")
            time.sleep(0.3)
        yield ",".join(addresses)


def _properties(folder: Path, number: int, address: str, controller: str) -> str:
    listeners = f"PLAINTEXT://{address}" + (f",CONTROLLER://{controller}" if number == 1 else "")
    return f"""\
process.roles={"broker,controller" if number == 1 else "broker"}
node.id={number}
controller.quorum.voters=1@{controller}
listeners={listeners}
advertised.listeners=PLAINTEXT://{address}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder / "data"}
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.dedupe.buffer.size=8388608
log.segment.bytes=67108864
"""
