"""Where KV state lives and how it is shared: the deciding half (bytes live in execution)."""
