"""Commands that the API runs: their options, the role that each needs, and the arguments of the command line.

A command of the API is the command of the same name on the command line, in a process of its own. So its output, its
exit codes and its errors are the same ([ADR 117](../../../../docs/adr/0117-the-api-runs-the-commands.md))."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc.model.errors import UsageError
from cdc.oidc.claims import ROLES, Role

Kind = Literal["text", "number", "integer", "boolean"]
NO_VALUES = "no_values"  # the option that hides values of rows
MOST_VALUES, LONGEST_VALUE = 1000, 10_000  # of an option that may be repeated; characters of a value
# the role that each command needs, and whether it changes anything
RIGHTS: Mapping[str, tuple[Role, bool]] = {
    "status": ("view", False),
    "plan": ("view", False),
    "wait": ("view", False),
    "dead-letters list": ("view", False),
    "verify": ("operate", True),
    "apply": ("operate", True),
    "dead-letters replay": ("operate", True),
    "dead-letters resolve": ("operate", True),
    "explain": ("admin", False),
    "dead-letters show": ("admin", False),
}
# commands that may take long: they must not keep the others from running
_LONG = frozenset({"wait", "verify", "apply", "dead-letters replay"})
# options whose text is a name, never a value of a row: the audit log shows them
_NAMES = frozenset({"stage", "table", "source", "column", "until"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    """An option or argument of a command. `flag` is its name on the command line, empty for an argument.

    `parameter` is the name of the parameter of the command's function.
    `many`: it may have several values. `least` is the smallest number. `about` is its help text."""

    name: str
    flag: str
    parameter: str = ""
    kind: Kind = "text"
    many: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    least: float | None = None
    default: Any = None
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCommand:
    """A command, by its words on the command line. Its first argument, the topology, is not among the options.

    `json`: it has the option `--json`; without it, its output is JSON anyway."""

    name: str
    about: str
    options: tuple[CommandOption, ...]
    json: bool

    @property
    def role(self) -> Role:
        """Return the role that the command needs."""
        return RIGHTS[self.name][0]

    @property
    def writes(self) -> bool:
        """Return whether the command can change something."""
        return RIGHTS[self.name][1]

    @property
    def is_long(self) -> bool:
        """Return whether the command may take longer than some seconds."""
        return self.name in _LONG

    @property
    def is_audited(self) -> bool:
        """Return whether the audit log has lines of the command: if it can change something, or show values of rows."""
        return self.writes or self.role == ROLES[-1]

    def arguments(self, file: str, given: Mapping[str, Any], *, text: bool, role: Role) -> list[str]:
        """Return the arguments of the command line for the topology in `file`.

        Without `text` the output is JSON. Values of rows are hidden from a `role` below `admin`. No value can be
        mistaken for an option. Raises UsageError for a value that does not fit."""
        found = [*self.name.split(), *(["--json"] if self.json and not text else [])]
        hides = any(option.name == NO_VALUES for option in self.options)
        given = {**given, NO_VALUES: True} if hides and role != ROLES[-1] else given
        positional = list[str]()
        for option in self.options:
            for value in _values(option, given.get(option.name)):
                if option.kind == "boolean":
                    found += [option.flag] if value == "True" else []
                elif option.flag:
                    found.append(f"{option.flag}={value}")
                else:
                    positional.append(value)
        return [*found, "--", file, *positional]

    def audited(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options for the audit log: of texts that may be values of rows, only that they were given."""
        return {
            option.name: given[option.name] if option.name in _NAMES or option.kind != "text" else "given"
            for option in self.options
            if given.get(option.name) not in (None, [], "", False)
        }


def _values(option: CommandOption, value: Any) -> Iterator[str]:
    several = value if isinstance(value, list | tuple) else [] if value is None else [value]
    if len(several) > (MOST_VALUES if option.many else 1):
        raise UsageError(
            f"{option.name} has {len(several)} values", f"give at most {MOST_VALUES if option.many else 1}"
        )
    if option.required and not several:
        raise UsageError(f"{option.name} is missing", option.about)
    for one in several:
        text = str(one)
        if len(text) > LONGEST_VALUE or "\0" in text:
            raise UsageError(f"{option.name} is not a text of at most {LONGEST_VALUE} characters", option.about)
        if option.choices and text not in option.choices:
            raise UsageError(f"{option.name} {text[:80]}: unknown", f"choose one of {', '.join(option.choices)}")
        if text or not option.flag:
            yield text
