"""docker-compose.yml offers what `tailorbird stack up` offers: the same services, ports, flags and versions.

No Docker is needed: both sides are compared as data.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.model.artefacts import VERSIONS
from cdc.process.file_topology import read_file
from tailorbird.devtools.demo.shop import SCHEMAS
from tailorbird.devtools.stack.postgres_service import POSTGRES_FLAGS
from tailorbird.devtools.stack.service_spec import ServiceSpec, Tools
from tailorbird.devtools.stack.services import KAFKA_CLUSTER_ID, service_specs
from tailorbird.devtools.stack.settings import ALL_SERVICES, CAPTURE_LOGIN, Ports, StackSettings
from tests.support.images_offer import TARGETS, images, instructions, stages, wrong_use

ROOT = Path(__file__).parents[2]
FILES = ROOT / "src" / "tailorbird" / "devtools" / "stack" / "files"

# Intended differences: inside its container the broker listens on all interfaces, and stores its data elsewhere.
KAFKA_DIFFERS = {"listeners", "log.dirs"}
# Set by the container's own entry point, or needed only by an unprivileged mysqld next to others.
MYSQL_OWN = {
    "basedir", "datadir", "lc-messages-dir", "port", "bind-address", "socket", "pid-file", "log-error",
    "secure-file-priv", "init-file", "tmpdir", "user", "no-defaults",
}  # fmt: skip
# SolrCloud: the stack's one-node cluster borrows HBase's ZooKeeper, which containers cannot reach. Users of Docker run
# Solr's own cluster.
NOT_IN_COMPOSE = {"solrcloud"}
IN_COMPOSE = [name for name in ALL_SERVICES if name not in NOT_IN_COMPOSE]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def specs() -> dict[str, ServiceSpec]:
    settings = StackSettings(home=Path("/data"), cache=Path("/cache"))
    tools = Tools(java=Path("/java"), mysql=Path("/mysql"), libraries=None, root=True)
    templates = {str(path.relative_to(FILES)): path.read_text() for path in FILES.rglob("*") if path.is_file()}
    return {str(name): spec for name, spec in service_specs(settings, tools, templates).items()}


def flags(argv: list[str] | tuple[str, ...]) -> dict[str, str]:
    return dict(word.removeprefix("--").partition("=")[::2] for word in argv if word.startswith("--"))


def properties(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.partition("=")[::2] for line in lines)


def pipeline_services(compose: dict[str, Any]) -> dict[str, Any]:
    """Return the services of Tailorbird itself."""
    return {name: one for name, one in compose["services"].items() if one.get("profiles") == ["pipeline"]}


def test_services_are_the_same(compose: dict[str, Any]) -> None:
    """Docker Compose starts every server of the stack but SolrCloud, and no other without a profile."""
    assert set(compose["services"]) - set(pipeline_services(compose)) == set(IN_COMPOSE)


@pytest.mark.parametrize("name", IN_COMPOSE)
def test_ports_are_the_same_and_loopback_only(compose: dict[str, Any], name: str) -> None:
    """A topology's default addresses work with either; no port is published beyond this machine."""
    service = compose["services"][name]
    if service.get("network_mode") == "host":
        # the command of the stack itself, so its own ports and its own loopback address
        assert service["command"] == ["tailorbird", "stack", "run", name]
        assert "ports" not in service
        return
    published = [port.split(":") for port in service["ports"]]
    assert {host for host, _, _ in published} == {"127.0.0.1"}
    inner_only = {"kafka_controller", "opensearch_transport"}
    expected = [port for listener, port in Ports().of(name) if listener not in inner_only]  # type: ignore[arg-type]  # a service
    assert [int(outside) for _, outside, _ in published] == expected


@pytest.mark.parametrize("name", ["mysql-shop", "mysql-crm"])
def test_mysql_flags_are_the_same(compose: dict[str, Any], specs: dict[str, ServiceSpec], name: str) -> None:
    """Capture relies on them: full row images and metadata, GTIDs, durability, distinct server ids."""
    ours = {flag: value for flag, value in flags(specs[name].argv).items() if flag not in MYSQL_OWN}
    assert flags(compose["services"][name]["command"]) == ours


@pytest.mark.parametrize("name", ["mysql-shop", "mysql-crm"])
def test_mysql_users_are_created_from_the_same_file(
    compose: dict[str, Any], specs: dict[str, ServiceSpec], name: str
) -> None:
    """Both create the users of one file; the health check uses the user of capture."""
    service = compose["services"][name]
    (mounted,) = [volume.split(":")[0] for volume in service["volumes"] if "initdb.d" in volume]
    init_file = Path(flags(specs[name].argv)["init-file"])
    assert (ROOT / mounted).read_text() == specs[name].files[init_file]
    assert f"--user={CAPTURE_LOGIN.user}" in service["healthcheck"]["test"]


def test_postgresql_has_the_same_flags_and_users(compose: dict[str, Any], specs: dict[str, ServiceSpec]) -> None:
    """Its log can be decoded with either; it starts only on request."""
    service, spec = compose["services"]["postgres"], specs["postgres"]
    theirs = {word for word in service["command"][1:] if word != "-c"}
    assert theirs == {f"{name}={value}" for name, value in POSTGRES_FLAGS.items()}
    assert theirs <= set(spec.argv)
    (mounted,) = [volume.split(":")[0] for volume in service["volumes"] if "initdb.d" in volume]
    assert (ROOT / mounted).read_text() in spec.files.values()
    assert service["profiles"] == ["postgres"]
    assert service["image"] == f"postgres:{VERSIONS['postgres'].rpartition('.')[0]}"


def test_opensearch_has_the_same_settings(compose: dict[str, Any], specs: dict[str, ServiceSpec]) -> None:
    """Names, memory and the refusal to create indexes by themselves are the same; it starts only on request."""
    service, spec = compose["services"]["opensearch"], specs["opensearch"]
    environment = dict(service["environment"])
    assert set(environment.pop("OPENSEARCH_JAVA_OPTS").split()) <= set(spec.argv)
    (text,) = [body for path, body in spec.files.items() if path.name == "opensearch.yml"]
    ours = {
        name: str(value)
        for name, value in yaml.safe_load(text.replace("true", "'true'").replace("false", "'false'")).items()
    }
    theirs = {name: value for name, value in environment.items() if "." in name}
    assert theirs == {
        name: value for name, value in ours.items() if not name.startswith(("path.", "network.", "http.", "transport."))
    }
    assert service["profiles"] == ["opensearch"]
    assert service["image"] == f"opensearchproject/opensearch:{VERSIONS['opensearch']}"


def test_kafka_properties_are_the_same(compose: dict[str, Any], specs: dict[str, ServiceSpec]) -> None:
    """Transactions, partition counts and retention are the same on both."""
    (text,) = [body for path, body in specs["kafka"].files.items() if path.name == "server.properties"]
    ours = {key: value for key, value in properties(text).items() if key not in KAFKA_DIFFERS}
    environment = dict(compose["services"]["kafka"]["environment"])
    assert environment.pop("CLUSTER_ID") == KAFKA_CLUSTER_ID
    heap = environment.pop("KAFKA_HEAP_OPTS")
    assert set(heap.split()) <= set(specs["kafka"].argv)
    theirs = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}
    assert {key: value for key, value in theirs.items() if key not in KAFKA_DIFFERS} == ours


def test_images_are_pinned_to_the_versions_of_the_stack(compose: dict[str, Any]) -> None:
    """The servers have the same release, MySQL the same series."""
    services = compose["services"]
    assert services["kafka"]["image"] == f"apache/kafka:{VERSIONS['kafka']}"
    assert services["solr"]["image"] == f"solr:{VERSIONS['solr']}"
    series = VERSIONS["mysql"].rpartition(".")[0]
    for name in ("mysql-shop", "mysql-crm"):
        image, _, tag = services[name]["image"].partition(":")
        assert (image, tag.rpartition(".")[0]) == ("mysql", series)


def test_dockerfile_builds_hbase_from_the_stack(compose: dict[str, Any]) -> None:
    """The project's own image contains what `stack run` needs, so that its container starts without a download."""
    for name in ("hbase", "thrift"):
        text = (ROOT / compose["services"][name]["build"]["dockerfile"]).read_text()
        assert "tailorbird stack fetch hbase" in text
        copied = {word for line in text.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]}
        assert copied == {"pyproject.toml", "build_backend.py", "locks", "README.md", "LICENSE", "src"}
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        assert {f"!{name}" for name in copied} <= set(ignored)


def test_the_pipeline_runs_every_process_of_its_topology(compose: dict[str, Any]) -> None:
    """Each source, table and index has a container."""
    services = pipeline_services(compose)
    topology = read_file(str(ROOT / "topologies" / "shop.yml"))
    commands = {" ".join(one["command"]) for one in services.values()}
    file = "/etc/tailorbird/shop.yml"
    wanted = {
        f"apply {file}",
        *(f"capture {file} --source {name}" for name in topology.sources),
        *(f"join {file} --table {name}" for name in topology.tables),
        *(f"index run {file} --index {name}" for name in topology.indexes),
        f"dashboard {file} --port 8080",
        f"api {file} --port 7450",
    }
    assert commands == wanted
    targets = {name: one["build"]["target"] for name, one in services.items()}
    assert targets == {
        "apply": "console", "capture-shop": "capture", "capture-crm": "capture", "join": "join", "index": "index",
        "dashboard": "console", "api": "console",
    }  # fmt: skip
    assert {one["image"] for one in services.values()} == {f"tailorbird-{target}" for target in targets.values()}


def test_containers_of_the_pipeline_are_restricted(compose: dict[str, Any]) -> None:
    """Read-only root, no capabilities, ports of their own on loopback, and one state folder."""
    services = pipeline_services(compose)
    for one in services.values():
        assert (one["read_only"], one["cap_drop"], one["tmpfs"]) == (True, ["ALL"], ["/tmp"])
        assert one["security_opt"] == ["no-new-privileges:true"]
        assert "tailorbird:/var/lib/tailorbird" in one["volumes"]
        assert one["environment"]["TAILORBIRD_METRICS_ADDRESS"] == "127.0.0.1"
    ports = [one["environment"].get("TAILORBIRD_METRICS_PORT") for one in services.values()]
    used = [port for port in ports if port]
    assert len(set(used)) == len(used) == len(services) - 3, "the dashboard and the API have their own port, apply ends"


def test_the_pipeline_uses_the_images_as_they_are(compose: dict[str, Any]) -> None:
    """Each container has the image that its command needs, with that image's user and volume. The command line accepts
    the command. A process with a health check has a port for it."""
    for name, one in pipeline_services(compose).items():
        mounted = [volume.split(":")[1] for volume in one["volumes"]]
        user = one.get("user", images()[one["build"]["target"]].user)
        assert wrong_use(one["image"], one["command"], user=user, mounted=mounted) == [], name
        asked = {"TAILORBIRD_METRICS_PORT", "TAILORBIRD_HEALTH_URL"} & one["environment"].keys()
        assert len(asked) == (0 if one["healthcheck"]["disable"] else 1), name
    for name in ("dashboard", "api"):
        web = pipeline_services(compose)[name]
        port = web["command"][-1]
        assert web["environment"]["TAILORBIRD_HEALTH_URL"] == f"http://127.0.0.1:{port}/health"
        assert int(port) in images()[web["build"]["target"]].ports


@pytest.mark.parametrize(
    ("image", "command", "user", "mounted", "port", "message"),
    [
        ("tailorbird-index", "join t.yml", "10001:10001", "/var/lib/tailorbird", 9464, "needs tailorbird-join"),
        ("tailorbird-join", "join t.yml --tabel t", "10001:10001", "/var/lib/tailorbird", 9464, "--tabel"),
        ("tailorbird-join", "join t.yml", "0:0", "/var/lib/tailorbird", 9464, "runs as 0:0"),
        ("tailorbird-join", "join t.yml", "10001:10001", "/data", 9464, "no volume at /var/lib/tailorbird"),
        ("tailorbird-join", "join t.yml", "10001:10001", "/var/lib/tailorbird", 8080, "uses port 8080"),
        ("tailorbird-joins", "join t.yml", "10001:10001", "/var/lib/tailorbird", 9464, "not an image"),
    ],
)
def test_a_wrong_use_of_an_image_is_found(
    image: str, command: str, user: str, mounted: str, port: int, message: str
) -> None:
    """The comparison above finds each kind of disagreement, and only that."""
    [found] = wrong_use(image, command.split(), user=user, mounted=[mounted], ports=[port])
    assert message in found


def test_images_are_pinned_locked_and_not_root() -> None:
    """The base has a version, every package a hash, and each target a fixed user, a health check and a title."""
    found = instructions()
    [base] = [value for word, value in found if word == "ARG" and value.startswith("BASE=")]
    assert re.fullmatch(r"BASE=docker\.io/library/debian:\d+\.\d+-slim", base)
    for target in TARGETS:
        words = dict(stages()[target])
        assert (words["USER"], words["ENTRYPOINT"]) == ("10001:10001", '["tailorbird"]')
        assert words["HEALTHCHECK"].endswith('CMD ["python3", "/opt/health.py"]')
        assert words["LABEL"] == f'org.opencontainers.image.title="tailorbird-{target}"'
    [label] = [value for word, value in stages()["base"] if word == "LABEL"]
    project = (ROOT / "pyproject.toml").read_text()
    [version] = re.findall(r'^version = "(.+)"', project, re.MULTILINE)
    assert f'org.opencontainers.image.version="{version}"' in label
    copied = {path for word, value in found if word == "COPY" and "--from" not in value for path in value.split()[:-1]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{path.removeprefix('./')}" for path in copied if not path.startswith("--")} <= set(ignored)


def test_the_examples_create_the_tables_of_the_demo() -> None:
    """The statements that docs/install.md pipes into the servers of Docker Compose."""
    for server, statements in SCHEMAS.items():
        text = (ROOT / "examples" / "shop" / f"{server}.sql").read_text()
        assert [one for one in statements if f"{one};\n" not in text] == []
