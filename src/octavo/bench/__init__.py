"""Measuring the engine through its public Python API."""
