"""The servers' command lines and files as data."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tailorbird.devtools.stack.service_spec import ServiceSpec, Tools
from tailorbird.devtools.stack.services import BUNDLE_OF, MYSQL_SERVER_IDS, STOP_SECONDS, service_specs
from tailorbird.devtools.stack.settings import ALL_SERVICES, SERVICES, Ports, ServiceName, StackSettings

FILES = Path(__file__).parents[2] / "src" / "tailorbird" / "devtools" / "stack" / "files"
TEMPLATES = {str(path.relative_to(FILES)): path.read_text() for path in FILES.rglob("*") if path.is_file()}
TOOLS = Tools(java=Path("/jre/bin/java"), mysql=Path("/cache/mysql"), libraries=Path("/cache/libaio"), root=False)
# ports that occur nowhere by chance
PORTS = Ports(**{name: 41_001 + number for number, (name, _) in enumerate(Ports().items())})
SETTINGS = StackSettings(home=Path("/home/of/it"), cache=Path("/cache"), ports=PORTS)


def specs(settings: StackSettings = SETTINGS, tools: Tools = TOOLS) -> dict[ServiceName, ServiceSpec]:
    return service_specs(settings, tools, TEMPLATES)


def words(spec: ServiceSpec) -> str:
    return "\n".join([*spec.argv, *spec.files.values()])


@pytest.mark.parametrize("name", ALL_SERVICES)
def test_every_listener_is_configured_where_the_settings_say(name: ServiceName) -> None:
    """A port that reached no file would leave the server on its default, colliding with another stack."""
    text = words(specs()[name])
    for _, port in PORTS.of(name):
        assert str(port) in text


@pytest.mark.parametrize("name", ALL_SERVICES)
def test_nothing_listens_beyond_this_machine(name: ServiceName) -> None:
    """The servers have no passwords worth the name: every address is the loopback one."""
    text = words(specs()[name])
    assert "127.0.0.1" in text
    assert "0.0.0.0" not in text
    defaults = [str(port) for _, port in Ports().of(name)]
    assert not [port for port in defaults if re.search(rf"[:=]{port}\b", text)]


@pytest.mark.parametrize("name", ALL_SERVICES)
def test_every_file_of_a_server_is_in_its_home(name: ServiceName) -> None:
    """`down --purge` removes one folder and nothing is left; the cache is only read."""
    spec = specs()[name]
    for path in (*spec.files, spec.log, spec.out, *spec.folders, *spec.leftovers):
        assert path.is_relative_to(SETTINGS.home)
    assert "${" not in "".join(body for path, body in spec.files.items() if path.name != "web.xml")


def test_no_server_shares_a_temporary_folder() -> None:
    """Each server has its own folder, which is created before the start and removed by `down --purge`."""
    used = {}
    for name, spec in specs().items():
        reported = [*spec.argv, *(f"tmpdir={value}" for key, value in spec.environ.items() if key == "TMPDIR")]
        (used[name],) = {Path(word.partition("=")[2]) for word in reported if "tmpdir=" in word}
        assert used[name] in spec.folders
    assert len(set(used.values())) == len(ALL_SERVICES)


@pytest.mark.parametrize("name", ["mysql-shop", "mysql-crm"])
def test_mysql_is_durable_and_reports_everything(name: ServiceName) -> None:
    """Capture needs full images, metadata and GTIDs; a server that forgets commits would look like our loss."""
    argv = set(specs()[name].argv)
    assert {
        "--binlog-format=ROW",
        "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--innodb-flush-log-at-trx-commit=1",
        "--sync-binlog=1",
    } <= argv


def test_postgresql_runs_as_who_is_not_root() -> None:
    """It refuses root: what goes before its command, and before initdb's, gives that up."""
    plain, spec = (
        specs()["postgres"],
        specs(tools=dataclasses.replace(TOOLS, unprivileged=("unshare", "--")))["postgres"],
    )
    assert plain.argv[0].endswith("bin/postgres")
    assert spec.argv == ("unshare", "--", *plain.argv)
    assert spec.preparation is not None
    assert spec.preparation.argv[:2] == ("unshare", "--")
    assert "wal_level=logical" in plain.argv
    # in single-user mode the server takes one statement a line
    assert all(line.endswith(";") for line in TEMPLATES["postgres/users.sql"].splitlines())


def test_mysql_servers_have_different_ids() -> None:
    """Two servers of one id could not be captured by one process."""
    assert len(set(MYSQL_SERVER_IDS.values())) == len(MYSQL_SERVER_IDS) == 2
    found = {word for spec in specs().values() for word in spec.argv if word.startswith("--server-id=")}
    assert found == {f"--server-id={number}" for number in MYSQL_SERVER_IDS.values()}


def test_mysql_runs_as_root_only_when_it_must() -> None:
    """mysqld refuses root without --user=root, and refuses that option for other users."""
    assert "--user=root" not in specs()["mysql-shop"].argv
    as_root = specs(tools=dataclasses.replace(TOOLS, root=True))["mysql-shop"]
    assert "--user=root" in as_root.argv
    assert as_root.preparation is not None
    assert "--user=root" in as_root.preparation.argv


def test_users_are_not_written_to_the_binlog() -> None:
    """They are made at every start: logged, each restart would be a transaction that capture must step over."""
    statements = TEMPLATES["mysql/users.sql"].splitlines()
    assert statements[0] == "SET SESSION sql_log_bin = 0;"
    # mysqld's init file takes one statement a line
    assert all(line.endswith(";") and line.count(";") == 1 for line in statements)


def test_the_user_of_capture_can_not_write() -> None:
    """The user that reads the binlog must not be able to change the database."""
    (grant,) = [line for line in TEMPLATES["mysql/users.sql"].splitlines() if "TO 'cdc'" in line]
    privileges = grant.removeprefix("GRANT ").partition(" ON ")[0].split(", ")
    assert {"SELECT", "REPLICATION SLAVE", "REPLICATION CLIENT"} <= set(privileges)
    assert not {"INSERT", "UPDATE", "DELETE", "ALL PRIVILEGES", "SUPER"} & set(privileges)


def test_preparation_fills_another_folder_than_the_one_it_ends_in() -> None:
    """Killed half-way it must be repeated: the data folder appears by a rename."""
    prepared = [spec.preparation for spec in specs().values() if spec.preparation]
    assert len(prepared) == 4
    for preparation in prepared:
        assert preparation.work != preparation.result
        assert preparation.work.parent == preparation.result.parent
        assert str(preparation.work) in " ".join(preparation.argv) or "format.properties" in preparation.argv[-1]


def test_hbase_survives_kill_and_replicates_soon() -> None:
    """The raw file system hands a put to the page cache at once; the pauses decide how fresh a document is."""
    spec = specs()["hbase"]
    (site,) = [body for path, body in spec.files.items() if path.name == "hbase-site.xml"]
    found = {item.findtext("name"): item.findtext("value") for item in ElementTree.fromstring(site).iter("property")}
    assert found["fs.file.impl"] == "org.apache.hadoop.fs.RawLocalFileSystem"
    assert found["hbase.rootdir"] == "file:///home/of/it/data/hbase/root"
    assert found["hbase.serial.replication.waiting.ms"] == "200"
    pause = int(found["replication.source.sleepforretries"] or 0) * int(
        found["replication.source.maxretriesmultiplier"] or 0
    )
    assert 0 < pause <= 100


@pytest.mark.parametrize("name", ["kafka", "solr"])
def test_rendered_files_are_well_formed(name: ServiceName) -> None:
    """A server must not be the first to read what we wrote."""
    for path, body in specs()[name].files.items():
        if path.suffix == ".xml":
            ElementTree.fromstring(body)
        if path.suffix == ".properties":
            assert all(re.match(r"#|$|[\w.-]+=.", line) for line in body.splitlines())


def test_a_changed_setting_changes_the_fingerprint() -> None:
    """`up` and `status` recognise a server that runs with older settings."""
    moved = StackSettings(home=SETTINGS.home, cache=SETTINGS.cache, ports=dataclasses.replace(PORTS, solr=50_000))
    before, after = specs(), specs(moved)
    changed = {name for name in ALL_SERVICES if before[name].fingerprint != after[name].fingerprint}
    assert changed == {"solr"}


def test_every_service_has_a_bundle_and_a_timeout() -> None:
    """The tables of bundles and timeouts are complete."""
    assert set(BUNDLE_OF) == set(STOP_SECONDS) == set(specs()) == set(ALL_SERVICES)


def test_heaps_fit_into_the_promise() -> None:
    """The whole stack is promised to fit into 1.5 GiB; half of that are heaps."""
    started = [spec for name, spec in specs().items() if name in SERVICES]
    heaps = [int(word[4:-1]) for spec in started for word in spec.argv if re.fullmatch(r"-Xmx\d+m", word)]
    assert len(heaps) == 4
    assert sum(heaps) <= 1100
