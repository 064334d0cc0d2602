"""Commands for the fleet: gateways, agents, certificates and tokens."""
