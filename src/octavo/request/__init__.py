"""What was asked and what is answered: plain data, imported by every other room."""
