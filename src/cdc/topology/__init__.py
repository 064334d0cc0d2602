"""What one YAML file declares, and its strict reader."""
