"""OpenTelemetry: traces of sampled changes, and the Prometheus metrics over OTLP (ADR 110)."""
