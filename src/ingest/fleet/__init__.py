"""Parts that agents and gateways share: messages, identities, fleet state, and the permissions of a source."""
