"""Properties run the same examples every time, and are not judged by the clock of a busy machine."""

from hypothesis import settings

settings.register_profile("octavo", derandomize=True, deadline=None)
settings.load_profile("octavo")
