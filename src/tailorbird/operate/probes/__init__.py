"""Probes: check that a server, a port, or this machine works. They do not depend on the local stack."""
