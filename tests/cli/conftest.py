import pytest

from octavo.execution.loader.tiny.write import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A two-layer llama with random weights, as a GGUF file."""
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf"))
