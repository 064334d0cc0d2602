"""The local servers: what they are, where their files come from, how they are started and stopped."""
