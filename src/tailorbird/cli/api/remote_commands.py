"""The commands that work over an API, as the command line declares them."""

from __future__ import annotations

from typing import Any

from tailorbird.web.api.commands import RIGHTS, CommandOption, Kind, RemoteCommand

FILE, AS_JSON = "file", "as_json"
# options of the terminal, and the topology, which is part of the path
_LEFT_OUT = frozenset({FILE, AS_JSON, "watch", "help"})
_KINDS: dict[str, Kind] = {"boolean": "boolean", "integer": "integer", "int": "integer", "float": "number"}


def remote_commands(root: Any) -> list[RemoteCommand]:
    """Return the commands below the command line's root (a `click.Group`) that an API runs."""
    return [_command(name, _leaf(root, name)) for name in RIGHTS]


def _leaf(group: Any, name: str) -> Any:
    for word in name.split():
        group = group.commands[word]
    return group


def _command(name: str, command: Any) -> RemoteCommand:
    return RemoteCommand(
        name=name,
        about=command.help.split("\n\n")[0].replace("\n", " "),
        options=tuple(_option(one) for one in command.params if one.name not in _LEFT_OUT),
        json=any(one.name == AS_JSON for one in command.params),
    )


def _option(param: Any) -> CommandOption:
    is_argument = param.param_type_name == "argument"
    many = bool(getattr(param, "multiple", False)) or param.nargs == -1
    flag = "" if is_argument else next(one for one in param.opts if one.startswith("--"))
    return CommandOption(
        name=(flag.removeprefix("--") or param.name).replace("-", "_").rstrip("_"),
        parameter=param.name,
        flag=flag,
        kind="boolean" if getattr(param, "is_flag", False) else _KINDS.get(param.type.name.split()[0], "text"),
        many=many,
        required=param.required,
        choices=tuple(map(str, getattr(param.type, "choices", ()))),
        least=getattr(param.type, "min", None),
        default=None if many or callable(param.default) else param.default,
        about=getattr(param, "help", "") or "",
    )
