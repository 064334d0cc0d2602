"""Models of the bodies of requests, made from the options of the commands, and the parts of every answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.datastructures import Headers

from ingest.fleet.paging import Page, PagedList
from ingest.gateway.http_api import TOTAL
from ingest.gateway.http_operators import Guard, asks
from tailorbird.web.api.commands import MOST_VALUES, CommandOption, RemoteCommand

MOST_ENTRIES, USUAL_ENTRIES = 1000, 100
_KINDS: dict[str, Any] = {"text": str, "number": float, "integer": int, "boolean": bool}


def body_of(command: RemoteCommand) -> type[BaseModel]:
    """Return the model of the body that starts a command: its options, and `text`."""
    fields: dict[str, Any] = {option.name: _field(option) for option in command.options}
    about = "Print text for people instead of JSON."
    fields["text"] = (bool, Field(default=False, description=about))
    name = "".join(word.title() for word in command.name.replace("-", " ").split())
    return create_model(f"{name}Options", __config__=ConfigDict(extra="forbid"), __doc__=command.about, **fields)


def _field(option: CommandOption) -> tuple[Any, Any]:
    kind = Literal[option.choices] if option.choices else _KINDS[option.kind]
    more: dict[str, Any] = {} if option.least is None else {"ge": option.least}
    if option.many:
        of = list[kind]  # type: ignore[valid-type]  # a type that the options decide
        several: Any = ... if option.required else []
        return of, Field(default=several, max_length=MOST_VALUES, description=option.about)
    default = ... if option.required else option.default
    return kind if default is not None else kind | None, Field(default=default, description=option.about, **more)


def guard_of(request: Request) -> Guard:
    """Return the guard of the topology in the path. Without one, that of the first topology that knows the token."""
    guards: dict[str, Guard] = request.app.state.guards
    first = next(iter(guards.values()))
    if (name := request.path_params.get("topology")) is not None:
        return guards.get(name, first)
    shown = Headers(scope=request.scope).get("authorization", "").removeprefix("Bearer ")
    return next((guard for guard in guards.values() if guard.knows(shown)), first)


Viewing = Annotated[Any, asks("view", guard_of)]
Administrating = Annotated[Any, asks("admin", guard_of)]


def _page(
    search: Annotated[str, Query(max_length=400, description="Only entries that contain all of these words.")] = "",
    offset: Annotated[int, Query(ge=0, description="Number of matching entries to leave out.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES, description="Maximum number of entries.")] = USUAL_ENTRIES,
) -> Page:
    return Page(search=search, offset=offset, limit=limit)


Paged = Annotated[Page, Depends(_page)]


def counted(found: PagedList[Any], response: Response) -> list[Any]:
    """Return the entries of a page. A header of the response has the number of all that match."""
    response.headers[TOTAL] = str(found.total)
    return found.entries
