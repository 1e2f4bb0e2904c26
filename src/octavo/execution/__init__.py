"""Plan -> program -> logits: runners, executors, loaders and number formats."""
