"""The command line: one file per sub-command. What is heavy is imported inside the commands, so `--help` is quick."""
