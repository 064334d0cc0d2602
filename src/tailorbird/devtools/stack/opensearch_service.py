"""The OpenSearch server of the local stack, as data."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Final

from cdc.model.artefacts import bundle_folder
from tailorbird.devtools.stack.service_spec import (
    JVM_ENVIRON,
    SMALL_JVM,
    ServiceSpec,
    Tools,
    log_files,
    own_temporary,
    temporary,
)
from tailorbird.devtools.stack.settings import StackSettings

OPENSEARCH_HEAP: Final = "-Xmx320m"


def opensearch(settings: StackSettings, tools: Tools, templates: Mapping[str, str]) -> ServiceSpec:
    """Return the definition of an OpenSearch of one node. Java compiles its launcher, so a JDK is needed."""
    data, conf = settings.home / "data" / "opensearch", settings.home / "conf" / "opensearch"
    log, out = log_files(settings, "opensearch")
    values = {
        "bind": settings.bind,
        "port": settings.ports.opensearch,
        "transport_port": settings.ports.opensearch_transport,
        "data": data,
        "logs": log.parent,
    }
    return ServiceSpec(
        name="opensearch",
        argv=(
            *(str(tools.java), "-Xms128m", OPENSEARCH_HEAP, *SMALL_JVM, own_temporary(settings, "opensearch")),
            f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}",
            *("-cp", f"{bundle_folder(settings.cache, 'opensearch')}/*"),
            *(str(conf / "LocalNode.java"), str(conf)),
        ),
        environ=JVM_ENVIRON,
        files={
            conf / "LocalNode.java": templates["opensearch/LocalNode.java"],
            conf / "opensearch.yml": Template(templates["opensearch/opensearch.yml"]).substitute(values),
            conf / "log4j2.properties": Template(templates["log4j2.properties"]).substitute(log=log),
        },
        log=log,
        out=out,
        ports=settings.ports.of("opensearch"),
        folders=(data, temporary(settings, "opensearch")),
        start_seconds=180.0,
    )
