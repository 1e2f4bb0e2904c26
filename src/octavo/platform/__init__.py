"""What the hardware can do, as far as Octavo needs to know it."""
