"""The JSON Schema of policies accepts what the reader accepts, and refuses what it refuses by structure."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from cdc.model.errors import TopologyError
from ingest.agent.policy_keys import policy_schema
from ingest.agent.policy_reader import read_policy
from tests.ingest.agent.test_policy_streams import POLICY as STREAMS
from tests.support.full_files import edited, mutations

ROOT = Path(__file__).parents[3]
DATABASES = """
dumps: true
locks: false
labels: {site: paris}
limits: {sources: 5, server_ids: 5000-5099, receive_rate: 10}
connections:
  shop-db:
    type: mysql
    hostname: 10.0.0.5
    port: 3306
    username: cdc
    password: ${file:secret}
    ssl_mode: required
    snapshot: {hostname: r, port: 3306}
    databases:
      open: all
      shop:
        tables: {users: {columns: [id, mail], mask: {mail: redact}, ignored_columns: [x]}}
      most:
        filter_policy: accept
        ignored_columns: [pin]
        mask: {mail: redact}
        tables: {secret: , users: {mask: {name: redact}}}
  pg:
    type: postgresql
    dbname: shop
    hostname: h
    username: u
    password: p
    databases: {public: all}
"""
_STRUCTURE = re.compile(
    r": unknown key |key \w+ is missing, |, expected (a text|a number from|a whole number|an address|a list|a mapping)"
    r"|it is empty|it has no value|alias '|^[^:]*:\d+: \S+: '[^']*', expected one of |none of sha256"
)


@cache
def validator() -> Draft7Validator:
    """Return the schema's validator."""
    schema = policy_schema()
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def refused(text: str) -> TopologyError | None:
    """Return the reader's refusal of a file."""
    try:
        read_policy(text, file="policy.yml", environ={}, content=lambda path: "hidden")
    except TopologyError as error:
        return error
    return None


def check_agreement(said: Any) -> str:
    """Check that the reader and the schema agree on a file: `accepted`, `structure`, or another reason."""
    text = yaml.safe_dump(said, allow_unicode=True)
    error, accepted = refused(text), validator().is_valid(edited(text))
    if error is None:
        assert accepted, f"{next(validator().iter_errors(edited(text))).message[:500]}\n{text}"
        return "accepted"
    if _STRUCTURE.search(str(error)):
        assert not accepted, f"{error}\n{text}"
        return "structure"
    return "other"


@pytest.mark.parametrize("text", [STREAMS, DATABASES, (ROOT / "examples" / "policy.yml").read_text()])
def test_policies_are_accepted(text: str) -> None:
    """Editors mark nothing in a right policy."""
    assert check_agreement(edited(text)) == "accepted"


@cache
def _every() -> list[Any]:
    return [*mutations(STREAMS), *mutations(DATABASES)]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_reader_and_schema_agree_on_a_changed_policy(data: st.DataObject) -> None:
    """A misspelt key could let data leave; editors mark it at once."""
    check_agreement(_every()[data.draw(st.integers(0, len(_every()) - 1))])


@pytest.mark.matrix
def test_reader_and_schema_agree_on_every_changed_policy() -> None:
    """So it is with every change of every value."""
    found = [check_agreement(said) for said in _every()]
    assert found.count("structure") > len(found) / 3
    assert found.count("accepted") > 5
