"""OpenTelemetry traces: one span per request of the API, with what the engine core noted of it."""
