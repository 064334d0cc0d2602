"""The Solr servers of the local stack, as data: a standalone one, and a SolrCloud of one node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Literal

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

_CLOUD = """<solrcloud>
    <str name="host">{host}</str>
    <int name="hostPort">{port}</int>
    <str name="hostContext">solr</str>
    <int name="zkClientTimeout">30000</int>
  </solrcloud>
</solr>"""


def solr_configsets(settings: StackSettings) -> Path:
    """Return the folder in which the standalone Solr looks for configsets."""
    return settings.home / "data" / "solr" / "configsets"


def solr(
    name: Literal["solr", "solrcloud"], settings: StackSettings, tools: Tools, templates: Mapping[str, str]
) -> ServiceSpec:
    """Return the definition of a Solr. `solrcloud` keeps its state in HBase's ZooKeeper, which must run."""
    data, conf = settings.home / "data" / name, settings.home / "conf" / name
    log, out = log_files(settings, name)
    webapp, port = conf / "webapp", dict(settings.ports.of(name))[name]
    values = {"bind": settings.bind, "port": port, "webapp": webapp}
    places = {"cores": data / "cores", "configsets": data / "configsets"}
    flags: tuple[str, ...] = ()
    server, heap = Template(templates["solr/solr.xml"]).substitute(places), "-Xmx256m"
    if name == "solrcloud":
        host = "127.0.0.1" if settings.bind == "0.0.0.0" else settings.bind
        server = server.replace("</solr>", "  " + _CLOUD.format(host=host, port=port))
        # HTTP/1: Solr's nodes use HTTP/2 among themselves, which this Jetty does not support
        zookeeper = f"-DzkHost={host}:{settings.ports.zookeeper}/solrcloud"
        flags, heap = (zookeeper, "-DcreateZkChroot=true", "-Dsolr.http1=true"), "-Xmx512m"
    return ServiceSpec(
        name=name,
        argv=(
            *(str(tools.java), "-Xms128m", heap, *SMALL_JVM, own_temporary(settings, name)),
            f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}",
            f"-Dsolr.solr.home={data}",
            f"-Dsolr.install.dir={conf}",
            f"-Dsolr.log.dir={log.parent}",
            f"-Dhost={settings.bind}",
            f"-Djetty.port={port}",
            *flags,
            *("-cp", f"{bundle_folder(settings.cache, 'solr')}/*"),
            *("org.eclipse.jetty.xml.XmlConfiguration", str(conf / "jetty.xml")),
        ),
        environ=JVM_ENVIRON,
        files={
            data / "solr.xml": server,
            conf / "jetty.xml": Template(templates["solr/jetty.xml"]).substitute(values),
            webapp / "WEB-INF" / "web.xml": templates["solr/web.xml"],
            conf / "log4j2.properties": Template(templates["log4j2.properties"]).substitute(log=log),
        },
        log=log,
        out=out,
        ports=settings.ports.of(name),
        folders=(places["cores"], places["configsets"], temporary(settings, name)),
    )
