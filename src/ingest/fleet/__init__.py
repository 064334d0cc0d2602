"""What agents and gateways both know: their words on the wire, who they are, and what a source may write; pure."""
