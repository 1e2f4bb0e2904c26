"""Decoding: logits to tokens.

`sampler.NativeSampler` implements the `Sampler` protocol of `octavo.execution.protocols` on the native core;
`reference.ReferenceSampler` is its slow NumPy twin, the meaning spelled out; `seeds.derive_seed` gives the answers of
one request their own noise. The order of the steps, the noise and the exactness rules: docs/decoding.md.
"""
