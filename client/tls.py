"""The files that encrypt a connection and show who is at its ends."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from twinlens.client.errors import TwinlensError, invalid


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """How a client encrypts: `TlsFiles()` where a public authority signed the server's certificate.

    Attributes:
        ca: PEM file of the authorities that may sign the server's certificate; None: the public ones, as gRPC has them.
        cert: PEM file of the client's own certificate chain, for servers that ask for one (mutual TLS).
        key: PEM file of its key, without a password.
        name: The name that the server's certificate is for, where that is not the host of the target: behind a tunnel,
            or at an IP address.

    Example:
        >>> secured = Client("search.example.com:443", token="8Gc0kXb4aTz1", tls=TlsFiles(ca="ca.pem"))
        >>> secured.close()
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    name: str = ""

    def options(self) -> list[tuple[str, str | int]]:
        """The channel options that go with it."""
        return [("grpc.ssl_target_name_override", self.name)] if self.name else []


def credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    """What a channel encrypts with.

    Raises:
        TwinlensError: INVALID_ARGUMENT, naming the file that cannot be used: gRPC itself would say so only in its log.
    """
    if (tls.cert is None) != (tls.key is None):
        raise invalid("a client's certificate and its key go together: give both, cert and key")
    ca, cert, key = (None if path is None else _read(path) for path in (tls.ca, tls.cert, tls.key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is not None:
        try:
            context.load_verify_locations(cadata=ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError):
            raise invalid(f"{_named(tls.ca)} holds no certificate in PEM form") from None
    if tls.cert is not None and tls.key is not None:
        try:
            # An empty password: without one, OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(tls.cert, tls.key, password="")
        except ssl.SSLError as error:
            raise invalid(_unusable(tls, error)) from None
        except OSError as error:
            raise invalid(f"{_named(tls.cert)} cannot be read: {error.strerror}") from None
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise TwinlensError("INVALID_ARGUMENT", f"{_named(path)} cannot be read: {_why(error)}") from None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _named(path: str | os.PathLike[str] | None) -> str:
    return "" if path is None else os.fspath(path)


def _unusable(tls: TlsFiles, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{_named(tls.key)} is not the key of {_named(tls.cert)}"
    return f"{_named(tls.cert)} and {_named(tls.key)} are not a certificate and its key in PEM form, without a password"
