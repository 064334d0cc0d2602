"""Forms of values. A form reads a value of a YAML file strictly, and describes the same rule as JSON Schema.

Every text may contain `${…}`, whose content only the reader knows. So each schema also accepts a text with a variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.grammar.values import NAME, Value

Schema = dict[str, Any]
_VARIABLE = r"\$\{"
# YAML reads `5` and `true` as other types than text, but the reader takes what is written
_SCALARS = ["string", "number", "boolean"]
_NAME = f"^{NAME.pattern}$"
_PORT = r"0*([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueForm:
    """The way in which a value is written.

    `read` returns its content or raises TopologyError. `schema` is the same rule as JSON Schema (draft 7).
    `choices` are the texts of an enumeration, else empty.
    """

    read: Callable[[Value], Any]
    schema: Schema
    choices: tuple[str, ...] = ()


def _or_variable(pattern: str) -> str:
    return f"^(?:{pattern})$|{_VARIABLE}"


TEXT = ValueForm(read=Value.text, schema={"type": _SCALARS})
TEXTS = ValueForm(read=Value.texts, schema={"type": "array", "items": TEXT.schema})
NAMED = ValueForm(read=Value.name, schema={"type": "string", "pattern": _or_variable(NAME.pattern)})
DURATION = ValueForm(
    read=Value.duration,
    schema={"type": "string", "pattern": _or_variable(r"\d+(\.\d+)?(ms|s|m|h|d)"), "examples": ["200ms", "5s", "10m"]},
)
ADDRESS = ValueForm(
    read=Value.address,
    schema={"type": "string", "pattern": _or_variable(rf".+:{_PORT}"), "examples": ["127.0.0.1:9092"]},
)


def _filled(value: Value) -> str:
    text = value.text()
    if not text:
        value.fail("an empty text", "what it is, as in `${file:…}` or `${NAME}`")
    return text


FILLED = ValueForm(read=_filled, schema={**TEXT.schema, "minLength": 1})


def number(low: int, high: int) -> ValueForm:
    """Return the form of a whole number."""
    pattern = rf"^-?\d+$|{_VARIABLE}"  # of a text; JSON Schema applies the limits to numbers only
    schema = {"type": ["integer", "string"], "minimum": low, "maximum": high, "pattern": pattern}
    return ValueForm(read=lambda value: value.number(low, high), schema=schema)


def one_of(*choices: str) -> ValueForm:
    """Return the form of an enumeration."""
    variable = {"type": "string", "pattern": _VARIABLE}
    schema = {"anyOf": [{"enum": list(choices)}, variable]}
    return ValueForm(read=lambda value: value.one_of(*choices), schema=schema, choices=choices)


YES = ValueForm(
    read=lambda value: value.one_of("true", "false") == "true",
    schema={"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": _or_variable("true|false")}]},
)


def matching(pattern: str, read: Callable[[Value], Any], *examples: str, digits: bool = False) -> ValueForm:
    """Return the form of a text with a pattern that Python and JavaScript understand alike. `read` checks it, too.

    `digits`: the text may look like a number."""
    schema: Schema = {"type": ["string", "number"] if digits else "string", "pattern": _or_variable(pattern)}
    return ValueForm(read=read, schema=schema | ({"examples": list(examples)} if examples else {}))


def texts(*, at_least: int = 0, expected: str = "") -> ValueForm:
    """Return the form of a list with a minimum length. `expected` is for the message about a shorter one."""

    def read(value: Value) -> tuple[str, ...]:
        found = value.texts()
        return found if len(found) >= at_least else value.fail("an empty list", expected)

    return ValueForm(read=read, schema={**TEXTS.schema, "minItems": at_least})


def listed(one: ValueForm, *, most: int, least: int = 1, alone: bool = False) -> ValueForm:
    """Return the form of a list of `least` to `most` values. `alone`: a value that is no list stands for a list of one.

    Its reader is that of the key."""
    many = {"type": "array", "items": one.schema, "minItems": least, "maxItems": most}
    return ValueForm(read=read_elsewhere, schema={"anyOf": [one.schema, many]} if alone else many)


def mapping(one: ValueForm, *, names: str = "", at_least: int = 0) -> ValueForm:
    """Return the form of a mapping from names to values of one form. `names` is a pattern of JSON Schema."""
    schema: Schema = {"type": "object", "additionalProperties": one.schema}
    if names:
        schema = {"type": "object", "patternProperties": {names: one.schema}, "additionalProperties": False}
    if at_least:
        schema["minProperties"] = at_least
    return ValueForm(read=lambda value: {name: one.read(item) for name, item in value.pairs().items()}, schema=schema)


def entries(one: ValueForm) -> ValueForm:
    """Return the form of named sections, one at least. `YamlFile.named` reads them."""
    return mapping(one, names=_NAME, at_least=1)


def chosen(names: Iterable[str], one: ValueForm) -> ValueForm:
    """Return the form of a mapping whose names are a closed list."""
    return ValueForm(
        read=read_elsewhere,
        schema={"type": "object", "properties": dict.fromkeys(names, one.schema), "additionalProperties": False},
    )


def either(*forms: ValueForm) -> ValueForm:
    """Return the form of a value that has one of several forms. Its reader is that of the key."""
    return ValueForm(read=read_elsewhere, schema={"anyOf": [form.schema for form in forms]})


def nullable(schema: Mapping[str, Any]) -> Schema:
    """Return a schema of a mapping that also accepts nothing: `orders:`."""
    return {**schema, "type": [schema["type"], "null"]}


def read_elsewhere(value: Value) -> Any:
    """Raise AssertionError: the reader of the section passes a function for this key."""
    raise AssertionError(f"{value.path} has no reader")


def escaped(names: Iterable[str]) -> str:
    """Return a pattern of literal texts."""
    return "|".join(re.escape(name) for name in names)
