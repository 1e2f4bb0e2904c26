"""TLS: certificate, key, and who may connect at all."""

import ssl
from pathlib import Path

from octavo.config import ServerConfig
from octavo.errors import ConfigError


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """What connections are encrypted with, TLS 1.2 or newer; None: plain HTTP.

    Raises:
        ConfigError: naming the file that cannot be used, and why.
    """
    if config.ssl_certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, config.ssl_certfile, config.ssl_keyfile)
    if config.ssl_ca_certs is not None:
        _load_authorities(context, config.ssl_ca_certs)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_certificate(context: ssl.SSLContext, certfile: str, keyfile: str | None) -> None:
    _check_readable("ssl_certfile", certfile)
    if keyfile is not None:
        _check_readable("ssl_keyfile", keyfile)
    key_field, key_path = ("ssl_keyfile", keyfile) if keyfile is not None else ("ssl_certfile", certfile)

    def no_password() -> str:
        raise ConfigError(key_field, key_path, "the key is encrypted; decrypt it into a file that only this user reads")

    try:
        context.load_cert_chain(certfile, keyfile, password=no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(key_field, key_path, f"the key does not belong to the certificate {certfile}") from None
        if _is_certificate(certfile):
            raise ConfigError(key_field, key_path, f"holds no private key in PEM form{_where_else(keyfile)}") from None
        raise ConfigError("ssl_certfile", certfile, "holds no certificate in PEM form") from None


def _where_else(keyfile: str | None) -> str:
    return "" if keyfile is not None else "; give ssl_keyfile, or a file that holds both"


def _is_certificate(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_readable("ssl_ca_certs", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise ConfigError("ssl_ca_certs", path, "holds no certificates in PEM form") from None


def _check_readable(field: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(field, path, f"cannot be read ({error.strerror})") from None
