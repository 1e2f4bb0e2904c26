"""TLS with certificates made on the spot."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import trustme

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.tls import tls_context
from tests.server.conftest import FakeServer, fake
from tests.server.running import running_server


@dataclass
class Files:
    """A certificate of an authority, and the authority."""

    authority: trustme.CA
    certfile: str
    keyfile: str
    ca_certs: str


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    names = Files(authority, *(str(folder / name) for name in ("cert.pem", "key.pem", "ca.pem")))
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(names.certfile, append=number > 0)
    certificate.private_key_pem.write_to_path(names.keyfile)
    authority.cert_pem.write_to_path(names.ca_certs)
    return names


def client_context(
    authority: trustme.CA, versions: tuple[ssl.TLSVersion, ssl.TLSVersion] | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if versions is not None:
        context.minimum_version, context.maximum_version = versions
    return context


@pytest.fixture(scope="module")
def encrypted(files: Files) -> Iterator[FakeServer]:
    config = ServerConfig(port=0, ssl_certfile=files.certfile, ssl_keyfile=files.keyfile, shutdown_timeout=5)
    with running_server(fake, config) as running:
        yield running


def test_a_verified_connection(encrypted: FakeServer, files: Files) -> None:
    assert encrypted.url.startswith("https://127.0.0.1:")
    with httpx.Client(base_url=encrypted.url, verify=client_context(files.authority)) as client:
        assert client.get("/health").status_code == 200
        answer = client.post("/v1/completions", json={"prompt": "x", "stream": True})
        assert answer.text.endswith("data: [DONE]\n\n")


def test_strangers_do_not_trust_it(encrypted: FakeServer) -> None:
    with (
        httpx.Client(verify=client_context(trustme.CA())) as client,
        pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.get(f"{encrypted.url}/health")


def test_plain_http_gets_no_answer(encrypted: FakeServer, files: Files) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(encrypted.url.replace("https", "http") + "/health")
    with httpx.Client(verify=client_context(files.authority)) as client:
        assert client.get(f"{encrypted.url}/health").status_code == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_nothing_older_than_tls_1_2(encrypted: FakeServer, files: Files) -> None:
    old = client_context(files.authority, (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1))
    old.set_ciphers("ALL:@SECLEVEL=0")
    with httpx.Client(verify=old) as client, pytest.raises(httpx.ConnectError):
        client.get(f"{encrypted.url}/health")
    exactly = client_context(files.authority, (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2))
    with httpx.Client(verify=exactly) as client:
        assert client.get(f"{encrypted.url}/health").status_code == 200
    context = tls_context(ServerConfig(ssl_certfile=files.certfile, ssl_keyfile=files.keyfile))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_mutual_tls(files: Files) -> None:
    config = ServerConfig(
        port=0, ssl_certfile=files.certfile, ssl_keyfile=files.keyfile, ssl_ca_certs=files.ca_certs, shutdown_timeout=5
    )
    with running_server(fake, config) as running:
        for issuer, welcome in ((None, False), (trustme.CA(), False), (files.authority, True)):
            context = client_context(files.authority)
            if issuer is not None:
                issuer.issue_cert("client@example.org").configure_cert(context)
            with httpx.Client(verify=context) as client:
                if welcome:
                    assert client.get(f"{running.url}/health").status_code == 200
                else:
                    with pytest.raises(httpx.TransportError):
                        client.get(f"{running.url}/health")


def test_errors_name_the_file(files: Files, tmp_path: Path) -> None:
    missing, text = str(tmp_path / "none.pem"), tmp_path / "text.pem"
    text.write_text("no certificate at all")
    other = tmp_path / "other.pem"
    files.authority.issue_cert("other").private_key_pem.write_to_path(other)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(encrypted_key())
    for certfile, keyfile, ca_certs, problem in (
        (missing, None, None, "ssl_certfile.*none.pem.*cannot be read"),
        (files.certfile, missing, None, "ssl_keyfile.*none.pem.*cannot be read"),
        (str(text), None, None, "ssl_certfile.*text.pem.*no certificate"),
        (str(text), files.keyfile, None, "ssl_certfile.*text.pem.*no certificate"),
        (files.certfile, str(text), None, "ssl_keyfile.*text.pem.*no private key"),
        (
            files.certfile,
            None,
            None,
            "ssl_certfile.*cert.pem.*no private key in PEM form; give ssl_keyfile, or a file that holds both",
        ),
        (files.certfile, str(other), None, "ssl_keyfile.*other.pem.*does not belong"),
        (files.certfile, str(locked), None, "ssl_keyfile.*locked.pem.*is encrypted"),
        (files.certfile, files.keyfile, missing, "ssl_ca_certs.*none.pem.*cannot be read"),
        (files.certfile, files.keyfile, str(text), "ssl_ca_certs.*text.pem.*no certificates"),
    ):
        with pytest.raises(ConfigError, match=problem):
            tls_context(ServerConfig(ssl_certfile=certfile, ssl_keyfile=keyfile, ssl_ca_certs=ca_certs))
    for field in ("ssl_keyfile", "ssl_ca_certs"):
        with pytest.raises(ConfigError, match=f"{field}.*no effect without ssl_certfile"):
            ServerConfig(**{field: "x.pem"})
    assert tls_context(ServerConfig()) is None


def encrypted_key() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"password"),
    )
