"""Define the servers of the local stack as data: commands, files, and what must exist before they start.

Nothing is started here. `proc_stack` reads the templates and passes their texts. Flags and versions were verified on
Debian 12 with 2 cores. Comments name the problem that a flag prevents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from cdc.model.artefacts import Bundle, bundle_folder
from tailorbird.devtools.stack.opensearch_service import opensearch
from tailorbird.devtools.stack.postgres_service import postgres
from tailorbird.devtools.stack.service_spec import (
    JVM_ENVIRON,
    SMALL_JVM,
    Preparation,
    ServiceSpec,
    Tools,
    log_files,
    own_temporary,
    temporary,
)
from tailorbird.devtools.stack.settings import ALL_SERVICES, ServiceName, StackSettings
from tailorbird.devtools.stack.solr_service import solr

# Fixed, so that clients that cached the id still recognise a purged and re-created broker as the same cluster.
KAFKA_CLUSTER_ID: Final = "dGFpbG9yYmlyZC1sb2NhbA"

BUNDLE_OF: Final[Mapping[ServiceName, Bundle]] = {
    "mysql-shop": "mysql",
    "mysql-crm": "mysql",
    "kafka": "kafka",
    "hbase": "hbase",
    "thrift": "hbase",
    "solr": "solr",
    "postgres": "postgres",
    "solrcloud": "solr",
    "opensearch": "opensearch",
}

# After this time SIGTERM is followed by SIGKILL; HBase flushes its memory stores first.
STOP_SECONDS: Final[Mapping[ServiceName, float]] = {
    "mysql-shop": 30.0,
    "mysql-crm": 30.0,
    "kafka": 30.0,
    "hbase": 60.0,
    "thrift": 10.0,
    "solr": 30.0,
    "postgres": 30.0,
    "solrcloud": 30.0,
    "opensearch": 30.0,
}

MYSQL_SERVER_IDS: Final[Mapping[ServiceName, int]] = {"mysql-shop": 101, "mysql-crm": 102}

# Settings that capture needs, and durability: a server that lost an acknowledged commit would look like data loss of
# Tailorbird.
MYSQL_FLAGS: Final[Mapping[str, str]] = {
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "innodb-flush-log-at-trx-commit": "1",
    "sync-binlog": "1",
    "innodb-buffer-pool-size": "64M",
    "performance-schema": "OFF",
    "mysqlx": "OFF",
    "skip-name-resolve": "ON",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "max-connections": "200",
}

_MAJOR_COMPACTION: Final = 2  # times as long as HBase keeps rows in memory
# HBase's Netty and Hadoop's caches access the JDK's internals.
_HBASE_JVM: Final = (
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "--add-modules=jdk.unsupported",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.nio",
            "sun.nio.ch",
            "java.lang",
            "jdk.internal.ref",
            "java.lang.reflect",
            "java.util",
            "java.util.concurrent",
        )
    ),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)


def service_specs(
    settings: StackSettings, tools: Tools, templates: Mapping[str, str]
) -> dict[ServiceName, ServiceSpec]:
    """Return every service of a stack. `templates` has the texts of the files below the folder `files`, by path."""
    builders = {
        "mysql-shop": lambda: _mysql("mysql-shop", settings, tools, templates),
        "mysql-crm": lambda: _mysql("mysql-crm", settings, tools, templates),
        "kafka": lambda: _kafka(settings, tools, templates),
        "hbase": lambda: _hbase(settings, tools, templates),
        "thrift": lambda: _thrift(settings, tools, templates),
        "solr": lambda: solr("solr", settings, tools, templates),
        "postgres": lambda: postgres(settings, tools, templates),
        "solrcloud": lambda: solr("solrcloud", settings, tools, templates),
        "opensearch": lambda: opensearch(settings, tools, templates),
    }
    return {name: builders[name]() for name in ALL_SERVICES}


def _mysql(name: ServiceName, settings: StackSettings, tools: Tools, templates: Mapping[str, str]) -> ServiceSpec:
    folder = settings.home / "data" / name
    conf = settings.home / "conf" / name
    log, out = log_files(settings, name)
    ports = settings.ports.of(name)
    mysqld = tools.mysql / "bin" / "mysqld"
    # its own folder: a mysqld that starts removes every #sql* file of the folder, also those of other servers
    scratch = temporary(settings, name)
    root = ("--user=root",) if tools.root else ()
    common = ("--no-defaults", *root, f"--basedir={tools.mysql}", f"--tmpdir={scratch}")
    messages = f"--lc-messages-dir={tools.mysql / 'share'}"
    users = conf / "users.sql"
    return ServiceSpec(
        name=name,
        argv=(
            str(mysqld),
            *common,
            messages,
            f"--datadir={folder}",
            f"--port={ports[0][1]}",
            f"--bind-address={settings.bind}",
            # relative to the data folder: an absolute name may exceed the 107 bytes of a socket's address
            "--socket=mysqld.sock",
            "--pid-file=mysqld.pid",
            f"--log-error={log}",
            "--log-bin=binlog",
            "--secure-file-priv=NULL",
            f"--init-file={users}",
            f"--server-id={MYSQL_SERVER_IDS[name]}",
            *(f"--{flag}={value}" for flag, value in MYSQL_FLAGS.items()),
        ),
        environ={"LD_LIBRARY_PATH": str(tools.libraries)} if tools.libraries else {},
        files={users: templates["mysql/users.sql"]},
        log=log,
        out=out,
        ports=ports,
        folders=(scratch,),
        # mysqld trusts the pid in it, even if that process is a zombie that a container's init never reaps
        leftovers=(folder / "mysqld.sock.lock",),
        preparation=Preparation(
            argv=(str(mysqld), *common, messages, f"--datadir={folder}.new", "--initialize-insecure"),
            work=folder.with_name(f"{folder.name}.new"),
            result=folder,
        ),
    )


def _kafka(settings: StackSettings, tools: Tools, templates: Mapping[str, str]) -> ServiceSpec:
    folder = settings.home / "data" / "kafka"
    conf = settings.home / "conf" / "kafka"
    ports = dict(settings.ports.of("kafka"))
    log, out = log_files(settings, "kafka")
    values = {"bind": settings.bind, "port": ports["kafka"], "controller_port": ports["kafka_controller"]}
    properties = Template(templates["kafka/server.properties"])
    work = folder.with_name("kafka.new")
    classes = f"{bundle_folder(settings.cache, 'kafka')}/*"
    files = {
        conf / "server.properties": properties.substitute(values, data=folder),
        conf / "format.properties": properties.substitute(values, data=work),
        conf / "log4j2.properties": Template(templates["log4j2.properties"]).substitute(log=log),
    }
    logging = f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}"
    return ServiceSpec(
        name="kafka",
        argv=(
            *(
                str(tools.java),
                "-Xms128m",
                f"-Xmx{settings.kafka_heap}m",
                *SMALL_JVM,
                own_temporary(settings, "kafka"),
                logging,
            ),
            *("-cp", classes, "kafka.Kafka", str(conf / "server.properties")),
        ),
        environ=JVM_ENVIRON,
        files=files,
        log=log,
        out=out,
        ports=settings.ports.of("kafka"),
        folders=(temporary(settings, "kafka"),),
        preparation=Preparation(
            argv=(
                *(str(tools.java), "-Xmx128m", *SMALL_JVM, logging, "-cp", classes),
                *("kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER_ID),
                *("-c", str(conf / "format.properties")),
            ),
            work=work,
            result=folder,
        ),
    )


def _hbase_files(settings: StackSettings, name: ServiceName, templates: Mapping[str, str]) -> dict[Path, str]:
    conf = settings.home / "conf" / name
    data = settings.home / "data" / "hbase"
    ports = dict(settings.ports.items())
    log, _ = log_files(settings, name)
    site = Template(templates["hbase/hbase-site.xml"]).substitute(
        bind=settings.bind,
        host="localhost" if settings.bind == "127.0.0.1" else settings.bind,
        data=data,
        root_uri=(data / "root").as_uri(),
        roll_ms=settings.hbase_minutes * 60_000,
        major_ms=_MAJOR_COMPACTION * settings.hbase_minutes * 60_000,
        zookeeper_port=ports["zookeeper"],
        master_port=ports["hbase_master"],
        region_port=ports["hbase_region"],
    )
    return {
        conf / "hbase-site.xml": site,
        conf / "log4j2.properties": Template(templates["log4j2.properties"]).substitute(log=log),
    }


def _hbase_jvm(settings: StackSettings, name: ServiceName, tools: Tools, heap: tuple[str, ...]) -> tuple[str, ...]:
    conf = settings.home / "conf" / name
    logging = f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}"
    classes = f"{conf}:{bundle_folder(settings.cache, 'hbase')}/*"
    return (str(tools.java), *heap, *SMALL_JVM, *_HBASE_JVM, own_temporary(settings, name), logging, "-cp", classes)


def _hbase(settings: StackSettings, tools: Tools, templates: Mapping[str, str]) -> ServiceSpec:
    log, out = log_files(settings, "hbase")
    # the rows in memory and the cached blocks (hbase-site.xml) must fit into the old generation with room to spare:
    # otherwise every few seconds of writing end in a full collection
    jvm = _hbase_jvm(settings, "hbase", tools, ("-Xms192m", "-Xmx480m", "-Xmn64m"))
    return ServiceSpec(
        name="hbase",
        argv=(*jvm, "org.apache.hadoop.hbase.master.HMaster", "start"),
        environ=JVM_ENVIRON,
        files=_hbase_files(settings, "hbase", templates),
        log=log,
        out=out,
        ports=settings.ports.of("hbase"),
        folders=(temporary(settings, "hbase"),),
        start_seconds=150.0,
    )


def _thrift(settings: StackSettings, tools: Tools, templates: Mapping[str, str]) -> ServiceSpec:
    log, out = log_files(settings, "thrift")
    jvm = _hbase_jvm(settings, "thrift", tools, ("-Xms64m", "-Xmx160m"))
    port = settings.ports.thrift
    return ServiceSpec(
        name="thrift",
        argv=(
            *(*jvm, "org.apache.hadoop.hbase.thrift.ThriftServer", "start"),
            *("-b", settings.bind, "-p", str(port), "--infoport", "-1"),
        ),
        environ=JVM_ENVIRON,
        files=_hbase_files(settings, "thrift", templates),
        log=log,
        out=out,
        ports=settings.ports.of("thrift"),
        folders=(temporary(settings, "thrift"),),
        start_seconds=180.0,
    )
