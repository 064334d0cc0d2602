"""Read the state of a join from its checkpoint, for `tailorbird state inspect`."""
