"""The grammar of YAML files: which keys a mapping may have, how each value is written, and the same as JSON Schema."""
