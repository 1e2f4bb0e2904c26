"""Octavo's own endpoints: tokens, health, load, metrics."""
