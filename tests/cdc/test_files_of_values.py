"""`${file:…}`: a value of a topology in a separate file, such as a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.model.errors import TopologyError
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology


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
