"""Answers of a given shape: which tokens may come next.

A `StructuredSpec` is translated into a grammar (`translate`), a `GrammarBackend` compiles it for one vocabulary into a
`CompiledGrammar`, and each answer follows it with a `Matcher` of its own that fills the rows of tokens allowed.
`service.GrammarService` does the compiling beside the caller and remembers. The rules: docs/structured_output.md.
"""
