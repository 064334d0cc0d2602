"""Keys of a mapping: form, meaning and default of each, and with which values of other keys it may be used."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import yaml

from cdc.grammar.forms import Schema, ValueForm, read_elsewhere
from cdc.grammar.values import NAME, Value, YamlFile

T = TypeVar("T")
DRAFT = "http://json-schema.org/draft-07/schema#"  # what editors know
_MISSING: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredKey:
    """A key of a mapping.

    `about` is its meaning, for editors. `default` is what a missing key means, as it would be written; None: the code
    that reads it decides. `only` are values of enumerations: the key is unknown if one of these keys has another value.
    `needs` is a key without which it is unknown.
    """

    form: ValueForm
    about: str
    required: bool = False
    default: str | None = None
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: str = ""


# several of one name differ in `only`: the first that fits is meant
Keys = Mapping[str, DeclaredKey | tuple[DeclaredKey, ...]]


def alternatives(keys: Keys, name: str) -> tuple[DeclaredKey, ...]:
    """Return the declarations of a key."""
    found = keys[name]
    return found if isinstance(found, tuple) else (found,)


class Section:
    """A mapping with declared keys: `take` reads one key, and `end` fails if there are keys that were not taken.

    An enumeration on which other keys depend (`only`) must be taken before these.
    """

    def __init__(self, value: Value, keys: Keys) -> None:
        self.value, self.pairs, self.keys, self.known = value, value.pairs(), keys, set[str]()
        self._choices = dict[str, object]()

    def take(
        self,
        name: str,
        default: Any = _MISSING,
        *,
        read: Callable[[Value], Any] | None = None,
        required: bool = False,
    ) -> Any:
        """Return the content of a key.

        `default` is for a key that is missing or not used with the section's other values. `read` replaces the form's
        reader, `required` adds to the declaration. Raises TopologyError for a wrong value, and for a missing key that
        is required.
        """
        found = next((one for one in alternatives(self.keys, name) if self._fits(one)), None)
        if found is None:
            return None if default is _MISSING else default
        self.known.add(name)
        if (required or found.required) and name not in self.pairs:
            self._fail_missing(name)
        result = self._read(name, found, default, read)
        if found.form.choices:
            self._choices[name] = result
        return result

    def _read(self, name: str, key: DeclaredKey, default: Any, read: Callable[[Value], Any] | None) -> Any:
        if name in self.pairs:
            return (read or key.form.read)(self.pairs[name])
        if key.default is not None and default is _MISSING:
            return (read or key.form.read)(_written(key.default, name))
        return None if default is _MISSING else default

    def _fail_missing(self, name: str) -> NoReturn:
        # a misspelt key is both missing and unknown; the error is reported at its line
        for near in difflib.get_close_matches(name, self.pairs.keys() - self.known, n=1):
            self.pairs[near].fail(f"unknown key {near}", name)
        self.value.fail(f"key {name} is missing", f"{name}: …")

    def _fits(self, key: DeclaredKey) -> bool:
        if key.needs and key.needs not in self.pairs:
            return False
        return all(self._choices[name] in values for name, values in key.only.items())

    def end(self) -> None:
        """Raise TopologyError for the first key that was not taken."""
        for key, value in self.pairs.items():
            if key not in self.known:
                value.fail(f"unknown key {key}", "one of " + ", ".join(sorted(self.known)))


def _written(text: str, name: str) -> Value:
    return Value(yaml.ScalarNode("tag:yaml.org,2002:str", text, _START, _START), name, YamlFile("", {}, str))


def empty_mapping() -> Value:
    """Return a mapping without keys, for a section whose keys all have defaults."""
    return Value(yaml.MappingNode("tag:yaml.org,2002:map", [], _START, _START), "", YamlFile("", {}, str))


_START = yaml.Mark("", 0, 0, 0, "", 0)


def section(keys: Keys, *, at_least: int = 0) -> ValueForm:
    """Return the form of a mapping with these keys, and a minimum number of them. Its reader is that of the key."""
    return ValueForm(read=read_elsewhere, schema=schema_of(keys) | ({"minProperties": at_least} if at_least else {}))


def schema_of(keys: Keys) -> Schema:
    """Return the JSON Schema (draft 7) of a mapping with these keys."""
    properties = {name: _property(alternatives(keys, name)) for name in keys}
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    flat = [key for name in keys for key in [(name, one) for one in alternatives(keys, name)]]
    if required := [name for name, key in flat if key.required and not key.only]:
        schema["required"] = required
    if needs := {name: [key.needs] for name, key in flat if key.needs}:
        schema["dependencies"] = needs
    if rules := [*_forbidden(keys), *_conditional(keys)]:
        schema["allOf"] = rules
    return schema


def _property(declared: tuple[DeclaredKey, ...]) -> Schema:
    """Return the schema of a value, without the conditions of other keys."""
    # several forms: `_conditional` says which one
    return _shown(declared[0]) | ({} if _differ(declared) else declared[0].form.schema)


def _differ(declared: tuple[DeclaredKey, ...]) -> bool:
    return any(one.form != declared[0].form for one in declared)


def _shown(key: DeclaredKey) -> Schema:
    return {"description": key.about} | ({} if key.default is None else {"default": key.default})


def _forbidden(keys: Keys) -> Iterator[Schema]:
    """Return the rules of keys that are unknown with some values of an enumeration, one for each set of values."""
    found = dict[tuple[str, tuple[str, ...]], list[str]]()
    for name in keys:
        declared = alternatives(keys, name)
        for choice in {choice: None for key in declared for choice in key.only}:
            allowed = {one for key in declared for one in key.only.get(choice, _choices(keys, choice))}
            others = tuple(one for one in _choices(keys, choice) if one not in allowed)
            if others:
                found.setdefault((choice, others), []).append(name)
    for (choice, others), names in found.items():
        yield {"if": _condition(keys, {choice: others}), "then": {"properties": dict.fromkeys(names, False)}}


def _conditional(keys: Keys) -> Iterator[Schema]:
    """Return the rules of keys that are required, or have another form, with some values of enumerations."""
    found = dict[str, tuple[Mapping[str, tuple[str, ...]], list[str], dict[str, Any]]]()
    for name in keys:
        declared = alternatives(keys, name)
        for key in declared:
            if not key.only or not (key.required or _differ(declared)):
                continue
            _, required, properties = found.setdefault(repr(sorted(key.only.items())), (key.only, [], {}))
            if key.required:
                required.append(name)
            if _differ(declared):
                properties[name] = _shown(key) | key.form.schema
    for only, required, properties in found.values():
        then = ({"required": required} if required else {}) | ({"properties": properties} if properties else {})
        yield {"if": _condition(keys, only), "then": then}


def _condition(keys: Keys, only: Mapping[str, tuple[str, ...]]) -> Schema:
    """Return the schema of mappings whose enumerations have these values, written or by default."""
    written = [name for name, values in only.items() if alternatives(keys, name)[0].default not in values]
    condition: Schema = {"properties": {name: {"enum": list(values)} for name, values in only.items()}}
    return condition | ({"required": written} if written else {})


def _choices(keys: Keys, name: str) -> tuple[str, ...]:
    return alternatives(keys, name)[0].form.choices


def named(value: Value, keys: Keys, read: Callable[[str, Section], T]) -> Mapping[str, T]:
    """Read a mapping name → section. Call `read` for each section, and fail if it leaves keys unread."""
    result: dict[str, T] = {}
    for name, item in value.pairs().items():
        if not NAME.fullmatch(name):
            item.fail(f"name {name!r}", "a lower-case letter, then letters, digits and _ (63 at most)")
        section = Section(item, keys)
        result[name] = read(name, section)
        section.end()
    if not result:
        value.fail("nothing in it", "one entry at least")
    return result
