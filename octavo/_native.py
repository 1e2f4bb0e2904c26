"""Stands in for the compiled core where there is none: a source checkout whose core was not built in place.

The built extension has the same name and comes first, so this file is read only when it is missing.
"""

raise ImportError(
    "octavo is being imported from a source checkout without its compiled core, which hides an installed octavo: "
    "run Python from another folder, or build the core in place with scripts/build-native"
)
