"""Commands of the fleet: the gateway, and who may dial it."""
