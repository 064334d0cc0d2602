"""Pause a comparison while its source is busy, like pt-table-checksum's `--max-load`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc.model.errors import UsageError

_LIMIT = re.compile(r"([A-Za-z_]+)[=:](\d+)")
_FIRST, _LONGEST = 0.2, 5.0  # seconds of a pause


def limits_of(text: str) -> Mapping[str, int]:
    """Parse limits such as `Threads_running=25,Threads_connected=400`. Raises UsageError for other text."""
    found = dict[str, int]()
    for part in filter(None, text.split(",")):
        match = _LIMIT.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"--max-load {text}: not a limit", "write e.g. --max-load Threads_running=25")
        found[match[1]] = int(match[2])
    return found


@dataclass(slots=True)
class Load:
    """Limits on the load of a server during a comparison.

    `status` returns the value of a status variable, `pause` waits for seconds. `reported` receives the reason of
    each wait."""

    limits: Mapping[str, int]
    status: Callable[[str], int | None]
    pause: Callable[[float], object]
    reported: Callable[[str], object]

    def wait(self) -> None:
        """Wait until no limit is exceeded. Raises UsageError for an unknown status variable."""
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
                    f"--max-load {name}: the server has no such status variable",
                    "SHOW GLOBAL STATUS lists those of MySQL; PostgreSQL has active_sessions",
                )
            if value > most:
                return f"{name} is {value}, more than {most}"
        return ""
