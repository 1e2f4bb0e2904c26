"""Logits processors that other packages bring: the contract, and their rows of a sampling call."""
