"""`${file:…}`: a value of a topology in a separate file, such as a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.model.errors import TopologyError
from cdc.process.file_topology import load_topology
from cdc.topology.reader import read_source, read_topology
from cdc.topology.topology import Topology
from ingest.agent.policy_reader import read_policy


def loaded(folder: Path, password: str) -> Topology:
    """Return a topology whose source has this password, on line 2."""
    source = f"type: mysql, hostname: h, username: u, password: '{password}', database: d, server_id: 7, tables: [a]"
    text = f"name: t\nsources: {{s: {{{source}}}}}\ntables: {{w: {{query: 'SELECT id FROM s.a', row_key: [id]}}}}\n"
    (folder / "t.yml").write_text(text)
    return load_topology(str(folder / "t.yml"))


def test_a_file_has_the_value(tmp_path: Path) -> None:
    """A mounted secret is used unchanged, except for the newline at its end; nothing in it is a variable."""
    (tmp_path / "secret").write_text("se${HOME}same \n\n")
    wanted = "se${HOME}same \n"
    for path in ("secret", str(tmp_path / "secret")):
        assert loaded(tmp_path, f"${{file:{path}}}").sources["s"].password == wanted
    assert loaded(tmp_path, "a-${file:secret}-${NONE:-b}").sources["s"].password == f"a-{wanted}-b"


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    """The error has the line in the topology and the name of the file."""
    with pytest.raises(TopologyError, match=r"t\.yml:2: sources\.s\.password: file none: No such file"):
        loaded(tmp_path, "${file:none}")
    (tmp_path / "secret").write_bytes(b"\xff")
    with pytest.raises(TopologyError, match=r"t\.yml:2: sources\.s\.password: file secret: not UTF-8 text"):
        loaded(tmp_path, "${file:secret}")


@pytest.mark.parametrize(
    "line",
    [
        "log: {partitions: '${file:secret}'}",
        "log: {min_compaction_lag: '${file:secret}'}",
        "log: {security: {protocol: '${file:secret}'}}",
        "hbase: {thrift: '${file:secret}'}",
        "solr: {url: 'http://${file:secret}'}",
        "sources: {s: {type: 'x${file:secret}'}}",
    ],
)
def test_an_error_does_not_show_what_a_file_contains(line: str, tmp_path: Path) -> None:
    """The wrong key may name the file with a password. The message shows the reference."""
    (tmp_path / "secret").write_text("correct'horse\\battery")
    file = tmp_path / "t.yml"
    some = "sources: {l: {type: syslog, database: d, listen: {udp: '127.0.0.1:9'}}}"
    some = "" if line.startswith("sources") else some
    file.write_text(f"name: t\n{line}\n{some}\n")
    with pytest.raises(TopologyError) as error:
        load_topology(str(file))
    assert "horse" not in str(error.value)
    assert "${file:secret}" in str(error.value)


def test_an_escaped_reference_is_text(tmp_path: Path) -> None:
    """`$${` stands for `${`: names of a database may contain it."""
    assert loaded(tmp_path, "a$${file:secret}$${X}$b").sources["s"].password == "a${file:secret}${X}$b"


@pytest.mark.parametrize("text", ["[" * 5000, "a: " + "{b: " * 5000, "- " * 5000 + "x", "name: \x01"], ids=range(4))
def test_hostile_yaml_is_one_error(text: str) -> None:
    """Neither nested lists nor control characters end in a traceback."""
    for read in (
        lambda: read_topology(text, file="t.yml", environ={}),
        lambda: read_policy(text, file="p.yml", environ={}, content=str),
        lambda: read_source(text, name="s", file="s.yml"),
    ):
        with pytest.raises(TopologyError, match=r"nested too deeply|not YAML"):
            read()
