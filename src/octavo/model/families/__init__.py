"""Model families: each defines its program from a checkpoint's header."""
