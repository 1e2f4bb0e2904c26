"""Deciding before running: the arithmetic of a model on a machine, without either."""
