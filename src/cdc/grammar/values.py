"""Nodes of a YAML file with line and path, for error messages. A reader calls the method of the type that it
expects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import yaml

from cdc.model.errors import MissingSecret, TopologyError

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{file:([^}]+)\}")


class Value:
    """A YAML node with its path. `text`, `number`, `pairs`, … return its content, or fail with the line and the
    expected type."""

    def __init__(self, node: yaml.Node, path: str, reader: YamlFile) -> None:
        self.node, self.path, self.reader = node, path, reader
        self._inserted = list[str]()
        reader.lines[path] = _first_line(node)

    def fail(self, what: str, expected: str) -> NoReturn:
        """Raise TopologyError. It never contains what a variable or file contains, which may be a password."""
        if any(one in what or repr(one)[1:-1] in what for one in self._inserted if one):
            what = f"the value of {self.node.value} is not valid"
        self.reader.fail(_first_line(self.node), self.path, what, expected)

    def lack(self, what: str, expected: str) -> NoReturn:
        """Fail because this host lacks a file or variable. Always raises MissingSecret."""
        at = _first_line(self.node)
        raise MissingSecret(file=self.reader.file, line=at, path=self.path, what=what, expected=expected)

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            self.fail(f"a {_kind(self.node)}", "a text")
        if self.node.tag == "tag:yaml.org,2002:null":
            self.fail("nothing", "a text")

        def substitute(match: re.Match[str]) -> str:
            name, default, file = match[1], match[2], match[3]
            if match[0] == "$${":  # escaped
                return "${"
            if file is not None:
                try:
                    return inserted(self.reader.content(file))
                except (OSError, UnicodeDecodeError) as error:
                    why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
                    self.lack(f"file {file}: {why}", "a readable file with the value in it")
            value = self.reader.environ.get(name, default)
            if value is None:
                self.lack(f"environment variable {name} is not set", f"export {name}=…, or ${{{name}:-default}}")
            return inserted(value) if name in self.reader.environ else value

        def inserted(text: str) -> str:
            self._inserted.append(text)
            return text

        return _VARIABLE.sub(substitute, self.node.value)

    def name(self) -> str:
        text = self.text()
        if not NAME.fullmatch(text):
            self.fail(f"name {text!r}", "a lower-case letter, then letters, digits and _ (63 at most)")
        return text

    def number(self, low: int, high: int) -> int:
        text = self.text()
        if not re.fullmatch(r"-?\d+", text):
            self.fail(repr(text), "a whole number")
        if not low <= int(text) <= high:
            self.fail(text, f"a number from {low} to {high}")
        return int(text)

    def duration(self) -> float:
        match = _DURATION.fullmatch(self.text())
        if match is None:
            self.fail(repr(self.text()), "a duration such as 200ms, 5s, 10m, 2h or 7d")
        return float(match[1]) * _SECONDS[match[2]]

    def address(self) -> str:
        text = self.text()
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            self.fail(repr(text), "an address host:port")
        return text

    def one_of(self, *choices: str) -> Any:
        text = self.text()
        if text not in choices:
            self.fail(repr(text), "one of " + ", ".join(choices))
        return text

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def items(self) -> list[Value]:
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail(f"a {_kind(self.node)}", "a list [a, b]")
        return [Value(node, f"{self.path}[{i}]", self.reader) for i, node in enumerate(self.node.value)]

    def pairs(self) -> dict[str, Value]:
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"a {_kind(self.node)}", "a mapping `key: value`")
        found: dict[str, Value] = {}
        for key, node in self.node.value:
            name = key.value
            path = f"{self.path}.{name}" if self.path else name
            if not isinstance(name, str):
                self.reader.fail(_first_line(key), self.path, "a key that is not text", "a plain key")
            if name in found:
                self.reader.fail(_first_line(key), path, "the same name twice", "each name once")
            found[name] = Value(node, path, self.reader)
        return found


class YamlFile:
    """The YAML file that is being read, with its variables. `fail` raises TopologyError with the file's name."""

    def __init__(self, file: str, environ: Mapping[str, str], content: Callable[[str], str]) -> None:
        self.file, self.environ, self.content, self.lines = file, environ, content, dict[str, int]()

    def fail(self, line: int, path: str, what: str, expected: str) -> NoReturn:
        raise TopologyError(file=self.file, line=line, path=path or "(top)", what=what, expected=expected)

    def composed(self, text: str, expected: str) -> yaml.Node | None:
        """Return the top node of the file's text, or None if it is empty. Raises TopologyError if it is not YAML."""
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            self.fail(line, "(top)", f"not YAML: {error.problem}", expected)
        except yaml.YAMLError as error:
            self.fail(1, "(top)", f"not YAML: {getattr(error, 'reason', error)}", expected)
        except RecursionError:
            self.fail(1, "(top)", "lists or mappings are nested too deeply", expected)


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "mapping"
    return "list" if isinstance(node, yaml.SequenceNode) else "text"


def _first_line(node: yaml.Node) -> int:
    """Return the line of a value's first character; a block scalar's text starts on the line after its `|`."""
    line: int = node.start_mark.line + 1
    return line + 1 if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else line
