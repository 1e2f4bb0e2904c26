"""Reasoning in the text of an answer, told from what the user reads."""
