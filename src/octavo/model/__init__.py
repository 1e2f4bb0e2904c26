"""What is computed: model families build programs, plain data that four readers share."""
