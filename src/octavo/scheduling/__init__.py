"""Who runs in this step and how many tokens: pure decisions, no clock, no tensors, no I/O."""
