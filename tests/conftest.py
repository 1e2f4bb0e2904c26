"""Properties run the same examples every time, and nothing is judged by the clock of a busy machine."""

import os

from hypothesis import settings

# Before NumPy is first imported: OpenBLAS threads that spin for each other take ten times as long on shared cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile("octavo", derandomize=True, deadline=None)
settings.load_profile("octavo")
