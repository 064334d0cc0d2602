"""`tailorbird init`: draft a topology from existing databases, with a reason for each choice."""
