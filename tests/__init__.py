"""A package, so that test rooms can share their harness (`from tests.scheduling.harness import ...`)."""
