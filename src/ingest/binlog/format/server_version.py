"""Version of the server that wrote a binlog, and what depends on it in the format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """Kind and version of the server that wrote a binlog.

    `checksums`: the format description ends in a checksum algorithm and a checksum. `year_has_sign`: the signs in a
    TABLE_MAP have a bit for YEAR (not in 8.0.15, but in 9.x).
    """

    server: str
    maria: bool
    version: tuple[int, int, int]

    @property
    def checksums(self) -> bool:
        return self.version >= ((5, 3, 0) if self.maria else (5, 6, 1))

    @property
    def year_has_sign(self) -> bool:
        return self.maria or self.version > (8, 0, 16)


def server_version_of(server: str) -> ServerVersion:
    """Parse a server's version text, such as `8.0.15-log` or `10.11.19-MariaDB-log`."""
    match = _VERSION.match(server)
    version = (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)
    return ServerVersion(server=server, maria="mariadb" in server.lower(), version=version)


MYSQL: Final = ServerVersion(server="", maria=False, version=(8, 4, 0))
