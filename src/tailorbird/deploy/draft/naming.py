"""Convert MySQL names, which may have nearly any form, to names that YAML, Spark SQL, HBase and Solr accept."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Container

from sqlglot.dialects.spark import Spark

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PLAIN_SQL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PLAIN_YAML = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
# texts that YAML parsers interpret as other types
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_KEYWORDS = {word for words in Spark.Tokenizer.KEYWORDS for word in words.lower().split()}
_ID = re.compile(r"_(id|ids|no|nr|num|number|key|fk|code|uuid|ref)$|_?(?:fk)_")
LONGEST = 50  # leaves room in names of at most 63 characters


def snake(name: str) -> str:
    """Return a name of lower-case letters, digits and `_` that begins with a letter: `CustomerID` → `customer_id`."""
    text = unicodedata.normalize("NFKD", _HUMPS.sub("_", name)).encode("ascii", "ignore").decode().lower()
    text = re.sub(r"[^a-z0-9]+", "_", text).strip("_")[:LONGEST].strip("_")
    return text if text[:1].isalpha() else f"c_{text}".strip("_")


def untaken(name: str, taken: Container[str]) -> str:
    """Return the name, followed by a number if `taken` contains it."""
    number, found = 2, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def role(column: str) -> str:
    """Return the role that the name of a reference column expresses: `customer_id` → `customer`."""
    text = snake(column)
    return _ID.sub("", text) or text


def quoted(name: str) -> str:
    """Return a name as an identifier of Spark SQL, in backticks if necessary."""
    if _PLAIN_SQL.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text in which a reader of topologies expands no variables and files: `${a}` → `$${a}`."""
    return text.replace("${", "$${")


def scalar(text: str) -> str:
    """Return a text as a YAML value that is read back unchanged, in quotes if necessary."""
    return key(literal(text))


def key(text: str) -> str:
    """Return a text as a YAML key, in which variables are not expanded, in quotes if necessary."""
    if _PLAIN_YAML.fullmatch(text) and text.lower() not in _YAML_WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)


def listing(names: list[str]) -> str:
    """Return a YAML list on one line."""
    return "[" + ", ".join(scalar(name) for name in names) + "]"
