"""What all conversation APIs share: a conversation on its way to the engine, and an answer on its way back."""
