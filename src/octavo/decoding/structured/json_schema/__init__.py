"""JSON Schema, draft 2020-12: which keywords are honoured is decided here, and never by a library's silence.

`document.read` takes the text, `rewrite.Rewriter` checks every keyword that is reached and writes a schema of those
that the backend enforces, `productive.prune` takes out what no finite value satisfies.
"""
