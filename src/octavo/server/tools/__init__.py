"""Tool calls in the text of an answer: one incremental parser core, one file per family of formats."""
