"""`octavo key`."""

import hashlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from octavo.cli.main import app
from octavo.config import ServerConfig
from octavo.server.api_keys import load_keys

runner = CliRunner()


def test_a_new_key_and_its_entry_fit_each_other(tmp_path: Path) -> None:
    made = runner.invoke(app, ["key", "new", "alice"])
    key, entry = made.stdout.strip(), made.stderr
    assert len(key) > 40
    assert key not in entry
    path = tmp_path / "keys.yaml"
    path.write_text("keys:\n" + entry)
    found = load_keys(ServerConfig(api_key_file=str(path))).user.find([(b"x-api-key", key.encode())])
    assert found is not None
    assert found.name == "alice"
    assert runner.invoke(app, ["key", "new", "alice"]).stdout.strip() != key


@pytest.mark.parametrize("key", ["secret", "schlüssel"])
def test_the_digest_of_a_key(key: str) -> None:
    hashed = runner.invoke(app, ["key", "hash"], input=f"{key}\n")
    assert hashed.stdout.strip() == hashlib.sha256(key.encode()).hexdigest()
    assert runner.invoke(app, ["key", "hash"], input="").exit_code == 2
