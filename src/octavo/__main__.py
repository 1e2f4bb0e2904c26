"""`python -m octavo`: the command line."""

from octavo.cli.main import main

main()
