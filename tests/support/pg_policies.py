"""The policy of an agent whose only connection is to a PostgreSQL server of the tests."""

from __future__ import annotations


def postgres_policy(port: int, dbname: str, databases: str, *, dumps: bool = True) -> str:
    """Return the text of a policy file. `databases` are its lines below `databases:`, indented by six spaces."""
    return f"""
dumps: {str(dumps).lower()}
labels: {{site: here}}
connections:
  db:
    type: postgresql
    hostname: 127.0.0.1
    port: {port}
    username: cdc
    password: cdc
    dbname: {dbname}
    databases:
{databases.strip(chr(10))}
"""
