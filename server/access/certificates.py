"""The server's certificate and the authorities of its clients, read again when their files change."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from twinlens.server.settings import Settings

log = logging.getLogger(__name__)


class CertificateError(Exception):
    """Files for TLS cannot be used. The message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the PEM files lie.

    Attributes:
        chain: The server's certificate, and those between it and an authority.
        key: Its key, not encrypted.
        client_ca: Authorities, one of which must have signed the certificate of a client; None: clients bring none.
    """

    chain: Path
    key: Path
    client_ca: Path | None = None

    def state(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What tells one version of the files from another."""
        return tuple(_state(path) for path in (self.chain, self.key, self.client_ca) if path is not None)


def certificate_files(settings: Settings) -> CertificateFiles | None:
    """The files that are set; None: no TLS."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return CertificateFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


class Certificates:
    """What connections begin with: the newest files that are in order.

    gRPC asks for each connection, in threads of its own. So a renewed certificate is taken without a restart; files
    that are not in order are not taken, and the log says why.

    Args:
        files: The files.

    Raises:
        CertificateError: if they are not in order to begin with.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen = files.state()
        first = read_certificates(files)
        self.credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            first,
            self.renewed,  # type: ignore[arg-type]  # the stubs leave out that None means no change
            require_client_authentication=files.client_ca is not None,
        )

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """The files' content, if they changed since the last time and are in order; otherwise None."""
        with self._lock:
            state = self._files.state()
            if state == self._seen:
                return None
            self._seen = state
            try:
                new = read_certificates(self._files)
            except CertificateError as error:
                log.error("%s; connections go on with the certificate before it", error)  # noqa: TRY400 - it says all
                return None
            log.info("connections begin with the certificate that is in %s now", self._files.chain)
            return new


def read_certificates(files: CertificateFiles) -> grpc.ServerCertificateConfiguration:
    """Reads the files.

    Raises:
        CertificateError: if they are not in order.
    """
    before = files.state()
    chain, key = _content(files.chain, "certificate"), _content(files.key, "key")
    authorities = None if files.client_ca is None else _content(files.client_ca, "certificates of authorities")
    # gRPC would only fail each connection, without saying why.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.chain, files.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"the key {files.key} does not belong to the certificate {files.chain}") from None
        raise CertificateError(
            f"the certificate {files.chain} and its key {files.key} cannot be used: both must be PEM, and the key not "
            "encrypted"
        ) from None
    except OSError as error:
        raise CertificateError(f"the certificate {files.chain} cannot be read: {error.strerror}") from None
    except ValueError:
        raise CertificateError(f"the key {files.key} must not be encrypted") from None
    if authorities is not None:
        try:
            context.load_verify_locations(cadata=authorities.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise CertificateError(f"there are no certificates of authorities in {files.client_ca}") from None
    # What was found to be in order is what lies there now, which must be what was read.
    if files.state() != before:
        raise CertificateError(f"the certificate {files.chain} or a file beside it changed while it was read")
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authorities)


def _no_password() -> bytes:
    """Otherwise the terminal is asked, which nobody may be sitting at."""
    raise ValueError("encrypted")


def _content(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"the {what} {path} cannot be read: {error.strerror}") from None


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - for each connection
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
