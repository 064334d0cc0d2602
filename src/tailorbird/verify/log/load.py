"""When a comparison waits for its source to have less to do, as pt-table-checksum's `--max-load`; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc.model.errors import UsageError

_LIMIT = re.compile(r"([A-Za-z_]+)[=:](\d+)")
_FIRST, _LONGEST = 0.2, 5.0  # seconds of a pause


def limits_of(text: str) -> Mapping[str, int]:
    """`Threads_running=25,Threads_connected=400` → the most of each status variable; UsageError for anything else."""
    found = dict[str, int]()
    for part in filter(None, text.split(",")):
        match = _LIMIT.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"--max-load {text}: no limit", "write e.g. --max-load Threads_running=25")
        found[match[1]] = int(match[2])
    return found


@dataclass(slots=True)
class Load:
    """The most that a server may have to do while it is asked. `status` tells a status variable, `pause` waits for
    seconds, `reported` hears once of each time that one waits, and why."""

    limits: Mapping[str, int]
    status: Callable[[str], int | None]
    pause: Callable[[float], object]
    reported: Callable[[str], object]

    def wait(self) -> None:
        """Return once no limit is passed. UsageError for a variable that the server has not."""
        seconds = _FIRST
        while why := self._passed():
            if seconds == _FIRST:
                self.reported(why)
            self.pause(seconds)
            seconds = min(2 * seconds, _LONGEST)

    def _passed(self) -> str:
        for name, most in self.limits.items():
            value = self.status(name)
            if value is None:
                raise UsageError(
                    f"--max-load {name}: the server has no such status",
                    "SHOW GLOBAL STATUS lists those of MySQL; PostgreSQL has active_sessions",
                )
            if value > most:
                return f"{name} is {value}, more than {most}"
        return ""
