"""`octavo serve` with everything that guards it: TLS, a key file, an admin key, several API processes."""

import hashlib
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import trustme

RUN = "from octavo.cli.main import main; main()"


@pytest.mark.slow
def test_a_guarded_server_of_two_processes(tiny_file: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    digest = hashlib.sha256(b"alice's").hexdigest()
    (tmp_path / "keys.yaml").write_text(f"keys:\n  - {{name: alice, sha256: {digest}, requests_per_minute: 7}}\n")
    command = [sys.executable, "-c", RUN, "serve", tiny_file, "--port", "0", "--threads", "1", "--max-model-len", "128"]
    command += ["--num-kv-blocks", "40", "--ssl-certfile", str(tmp_path / "both.pem"), "--api-server-count", "2"]
    command += ["--api-key-file", str(tmp_path / "keys.yaml"), "--admin-key", "boss"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[1]
            assert url.startswith("https://")
            statuses = [ask(authority, "POST", f"{url}/v1/completions", "alice's") for _ in range(10)]
            assert statuses == [200] * 7 + [429] * 3, "exact, whichever process answers"
            assert ask(authority, "GET", f"{url}/admin/requests", "boss") == 200
            assert ask(authority, "GET", f"{url}/admin/requests", "alice's") == 401
            assert ask(authority, "GET", f"{url}/v1/models", "boss") == 401
        finally:
            process.terminate()
            told = process.communicate(timeout=60)[1]
    assert process.returncode == 0
    assert "alice's" not in told
    assert "boss" not in told


def ask(authority: trustme.CA, method: str, url: str, key: str) -> int:
    """The status of a request over a connection of its own, which some process takes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    with httpx.Client(verify=context, timeout=60) as http:
        body = {"prompt": "hello", "max_tokens": 2} if method == "POST" else None
        return http.request(method, url, json=body, headers={"x-api-key": key}).status_code
