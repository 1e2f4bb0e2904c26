"""The loop and its two sides: the engine core that steps, the client that speaks to it, and the Python API."""
