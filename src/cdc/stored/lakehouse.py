"""The Iceberg catalog that contains joined tables, and where their files are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergCatalog:
    """A catalog in a SQL database (`uri`, of SQLAlchemy), and the folder of the files (`warehouse`, a path or URL).

    Readers find the tables in `namespace`. At least `interval` seconds are between two commits of a table that keeps
    up. Replaced files stay for `retain` seconds. `properties` are those of PyIceberg, e.g. for S3. `uri` and
    `properties` may contain passwords, which appear in no message or log."""

    uri: str = field(repr=False)
    warehouse: str
    namespace: str
    interval: float
    retain: float
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def rows(self) -> str:
        """Return the namespace of the stored rows, which readers do not use."""
        return f"{self.namespace}_rows"

    @property
    def for_tasks(self) -> IcebergCatalog:
        """Return the catalog without the login of its database: tasks of a join access only files."""
        return replace(self, uri="")

    def __str__(self) -> str:
        return f"Iceberg at {self.warehouse}"
