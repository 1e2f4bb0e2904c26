"""The outside world: an OpenAI-compatible HTTP server over one engine."""
