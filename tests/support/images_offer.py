"""What the images of docker/Dockerfile offer to the files that start them: Docker Compose and the Helm chart."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.parsed_command import parse

DOCKERFILE = Path(__file__).parents[2] / "docker" / "Dockerfile"
TARGETS = ("capture", "join", "index", "console")
# Commands that need the packages of another image than the console's
_IMAGE_OF = {"capture": "capture", "agent": "capture", "join": "join", "submit": "join", "index": "index"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The user, the volumes and the ports of an image, and the port of its health check."""

    user: str
    volumes: frozenset[str]
    ports: frozenset[int]
    metrics_port: int


def instructions(file: Path = DOCKERFILE) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments; continued lines are joined."""
    text = file.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines)]


@cache
def stages() -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return the instructions of each stage by its name."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for word, value in instructions():
        if word == "FROM":
            name = value.rpartition(" AS ")[2]
            found[name] = []
        elif name:
            found[name].append((word, value))
    return found


@cache
def images() -> Mapping[str, Image]:
    """Return what each target offers."""
    base = dict(word.partition("=")[::2] for word, value in stages()["base"] if word == "ENV" for word in value.split())
    port = int(base["TAILORBIRD_METRICS_PORT"])
    found = {}
    for target in TARGETS:
        words = dict(stages()[target])
        ports = frozenset(map(int, words["EXPOSE"].split()))
        volumes = frozenset(words["VOLUME"].split())
        found[target] = Image(user=words["USER"], volumes=volumes, ports=ports, metrics_port=port)
    return found


def wrong_use(
    image: str, arguments: Sequence[str], *, user: str, mounted: Collection[str], ports: Collection[int] = ()
) -> list[str]:
    """Return what a container asks of an image that the image does not offer; `image` is its name without registry."""
    line = " ".join(arguments)
    target = image.removeprefix("tailorbird-").partition(":")[0]
    if target not in TARGETS or not image.startswith("tailorbird-"):
        return [f"{image} is not an image of docker/Dockerfile"]
    offer, found = images()[target], list[str]()
    wanted = _IMAGE_OF.get(arguments[0] if arguments else "", "console")
    if target != wanted:
        found.append(f"`{line}` needs tailorbird-{wanted}, but runs in {image}")
    try:
        parse(shlex.join(["tailorbird", *arguments]))
    except ValueError as error:
        found.append(str(error))
    if user != offer.user:
        found.append(f"`{line}` runs as {user}, but the user of {image} is {offer.user}")
    found += [f"`{line}` has no volume at {path}" for path in sorted(offer.volumes - set(mounted))]
    return found + [f"`{line}` uses port {port}, which {image} does not expose" for port in set(ports) - offer.ports]
