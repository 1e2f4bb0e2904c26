"""What stands before many engines: who holds which prefix."""
