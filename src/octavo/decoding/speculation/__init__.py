"""Guesses of what comes next in an answer, for the sampler to verify: see docs/proposers.md.

`Proposer` is the contract inside this room; `build.proposer_named` makes what `--speculation` names, and
`tokens_only.TokensOnly` is what the runner asks.
"""
