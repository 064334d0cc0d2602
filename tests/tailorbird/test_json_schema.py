"""The JSON Schema of topologies accepts what the reader accepts, and refuses what it refuses by structure.

Structure is: unknown and missing keys, kinds of values (mapping, list, text), enumerations, and forms of values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from typer.testing import CliRunner

from cdc.grammar.forms import Schema
from cdc.model.errors import TopologyError
from cdc.topology.reader import read_topology
from cdc.topology.topology_keys import topology_schema
from tailorbird.cli.app import app
from tests.laws.topologies import topologies
from tests.support.full_files import FULL, edited, mutations

ROOT = Path(__file__).parents[2]
CASES = sorted((ROOT / "tests" / "cases" / "topologies").glob("*.case"))
# What only the reader checks, with the reason.
NOT_BY_STRUCTURE = {
    "duplicate_name": "YAML itself: the same key twice",
    "foreign_table_of_our_own": "a name that another part of the file has",
    "foreign_table_that_we_join": "a name that another part of the file has",
    "hbase_table_named_layouts": "a reserved name",
    "no_server_for_postgres": "a section that a value of another part of the file needs",
    "no_catalog_for_iceberg": "a section that a value of another part of the file needs",
    "index_over_kafka_table": "a reference to another part of the file",
    "kafka_table_named_like_a_change_topic": "a name that another part of the file has",
    "kafka_table_named_like_a_control_topic": "a reserved name",
    "missing_environment_variable": "the environment",
    "not_yaml": "YAML itself",
    "poll_interval_zero": "the range of a duration",
    "poll_lag_too_long": "the range of a duration",
    "row_key_not_selected": "SQL",
    "series_without_time": "a relation between a panel and its page",
    "sql_syntax": "SQL",
    "two_names_of_one_topic": "names that Kafka does not distinguish",
    "two_tables_of_one_topic": "names that Kafka does not distinguish",
    "unknown_column_in_dashboard": "a reference to another part of the file",
    "unknown_column_in_panel": "a reference to another part of the file",
    "unknown_column_in_search": "a reference to another part of the file",
    "unknown_field_in_search": "a reference to another part of the file",
    "unknown_index_in_dashboard": "a reference to another part of the file",
    "unknown_source_in_query": "SQL",
    "unknown_table_in_index": "a reference to another part of the file",
    "unknown_table_in_query": "SQL",
    "unsupported_join": "SQL",
}
SECTIONS = (
    "name",
    "sources",
    "foreign_tables",
    "indexes",
    "dashboards",
    "checks",
    "webhooks",
)  # described outside of tables
_STRUCTURE = re.compile(
    r": unknown key |key \w+ is missing, |nothing in it, |: an empty (list|text), |, expected (a text|a number from"
    r"|a whole number|a duration|an address|a list|a mapping)|: name '[^']*', expected a lower"
    r"|^[^:]*:\d+: \S+: '[^']*', expected one of |, expected 1 to \d+$|no table, expected one table at least"
)


@cache
def validator() -> Draft7Validator:
    """Return the schema's validator."""
    schema = topology_schema()
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def refused(text: str) -> TopologyError | None:
    """Return the reader's refusal of a file."""
    try:
        read_topology(text, file="t.yml", environ={}, content=lambda path: "x")
    except TopologyError as error:
        return error
    return None


def check_agreement(said: Any) -> str:
    """Check that the reader and the schema agree on a file: `accepted`, `structure`, or another reason."""
    text = yaml.safe_dump(said, allow_unicode=True)
    error, accepted = refused(text), validator().is_valid(edited(text))
    if error is None:
        assert accepted, next(validator().iter_errors(edited(text))).message[:500] + "\n" + text
        return "accepted"
    if _STRUCTURE.search(str(error)):
        assert not accepted, f"{error}\n{text}"
        return "structure"
    return "other"


@pytest.mark.parametrize("kind", ["topology", "policy"])
def test_the_file_in_the_repository_is_current(kind: str) -> None:
    """Editors of a checkout read the file; `tailorbird json-schema` writes it."""
    result = CliRunner().invoke(app, ["json-schema", kind])
    assert result.exit_code == 0, result.output
    assert (ROOT / "topologies" / f"{kind}.schema.json").read_text() == result.output
    Draft7Validator.check_schema(json.loads(result.output))


@pytest.mark.parametrize("file", sorted((ROOT / "topologies").glob("*.yml")), ids=lambda file: file.name)
def test_shipped_topologies_are_accepted(file: Path) -> None:
    """The schema has no false alarm for them, and they name it for editors."""
    validator().validate(edited(file.read_text()))
    assert "# yaml-language-server: $schema=topology.schema.json\n" in file.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_cases_are_refused_by_structure_or_listed(case: Path) -> None:
    """A case that the schema cannot refuse is listed with the reason; no other is."""
    text = case.read_text().partition("->\n")[0]
    try:
        accepted = validator().is_valid(edited(text))
    except yaml.YAMLError:
        accepted = True  # not the schema's matter
    assert accepted == (case.stem in NOT_BY_STRUCTURE)


def test_the_list_names_cases() -> None:
    """A renamed case stays listed."""
    assert NOT_BY_STRUCTURE.keys() <= {case.stem for case in CASES}


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(topologies())
def test_reader_and_schema_agree_on_random_topologies(said: dict[str, Any]) -> None:
    """What the reader accepts is accepted; what it refuses by structure is refused."""
    check_agreement(said)


@pytest.mark.parametrize("name", FULL)
def test_full_topologies_are_accepted(name: str) -> None:
    """The samples that the next tests change are right."""
    assert check_agreement(edited(FULL[name])) == "accepted"


def used(schema: Schema, said: Any, at: str) -> Iterator[str]:
    """Return the path of each declared key that a file uses."""
    for part in [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ()), *_then(schema)]:
        if part is not schema and isinstance(part, dict):
            yield from used(part, said, at)
    if isinstance(said, dict):
        for name, value in said.items():
            inner = schema.get("properties", {}).get(name)
            if inner is not None:
                yield f"{at}.{name}"
            more = [one for pattern, one in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
            for one in (inner, *more, schema.get("additionalProperties")):
                if isinstance(one, dict):
                    yield from used(one, value, f"{at}.{name}" if one is inner else f"{at}.*")
    if isinstance(said, list) and isinstance(schema.get("items"), dict):
        for value in said:
            yield from used(schema["items"], value, f"{at}[]")


def declared(schema: Schema, at: str) -> Iterator[tuple[str, str | None]]:
    """Return the path and the description of each declared key."""
    for part in [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *_then(schema)]:
        yield from declared(part, at)
    for name, one in schema.get("properties", {}).items():
        if isinstance(one, dict):
            yield f"{at}.{name}", one.get("description")
            yield from declared(one, f"{at}.{name}")
    for one in [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]:
        if isinstance(one, dict):
            yield from declared(one, f"{at}.*")
    if isinstance(schema.get("items"), dict):
        yield from declared(schema["items"], f"{at}[]")


def _then(schema: Schema) -> list[Schema]:
    return [rule["then"] for rule in schema.get("allOf", ())]


def test_the_reader_takes_every_declared_key() -> None:
    """The full topologies have every key of the schema, and the reader accepts them: none is declared in vain."""
    schema = topology_schema()
    wanted = {path for path, _ in declared(schema, "")}
    roles = {f".log.security.roles.{role}" for role in ("gateway", "join", "indexer", "console", "operator")}
    found = {path for text in FULL.values() for path in used(schema, edited(text), "")}
    certificates = {f".log.security.roles.capture.{name}" for name in ("certificate_file", "key_file", "key_password")}
    left = {path for path in wanted - found - certificates if not path.startswith(tuple(roles))}
    assert left == set()
    assert len(found) > 150


def test_every_key_is_described_for_editors_and_in_the_reference() -> None:
    """Hover help has a sentence for each key, and topologies/README.md a row."""
    reference = (ROOT / "topologies" / "README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \|", reference, re.MULTILINE)
    panels = re.search(r"^\| `panels\[\]\.<type>` .*", reference, re.MULTILINE)
    assert panels is not None
    words = {word for row in [*rows, panels[0]] for word in re.findall(r"\w+", row)} | {*SECTIONS}
    for path, description in declared(topology_schema(), ""):
        name = path.rpartition(".")[2]
        if description is None:
            assert path.startswith(".log.security.roles."), path  # the names of roles
            continue
        assert description.endswith("."), path
        assert name in words, path


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_reader_and_schema_agree_on_a_changed_file(data: st.DataObject) -> None:
    """A changed value, a missing key and an unknown one are refused by both, wherever they are."""
    every = _every()
    check_agreement(every[data.draw(st.integers(0, len(every) - 1))])


@cache
def _every() -> list[Any]:
    return [said for name in FULL for said in mutations(FULL[name])]


@pytest.mark.matrix
@pytest.mark.parametrize("name", FULL)
def test_reader_and_schema_agree_on_every_changed_file(name: str) -> None:
    """So it is with every change of every value."""
    found = [check_agreement(said) for said in mutations(FULL[name])]
    assert found.count("structure") > len(found) / 3
    assert found.count("accepted") > 5
