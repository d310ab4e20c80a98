"""Whether what a server needs for the network around it is there, asked before its model is loaded."""

from __future__ import annotations

from twinlens.server.access.certificates import CertificateError, certificate_files, read_certificates
from twinlens.server.access.token_file import TokenFileError, read_tokens
from twinlens.server.core.active import StartError
from twinlens.server.settings import Settings


def check_access(settings: Settings) -> None:
    """Reads the files of tokens and certificates that are set, and looks for what fetching needs.

    Raises:
        StartError: one line saying what is wrong with them.
        ModuleNotFoundError: where pictures are to be fetched and the extra `fetch` is not installed.
    """
    try:
        if settings.tokens is not None:
            read_tokens(settings.tokens)
        if (files := certificate_files(settings)) is not None:
            read_certificates(files)
    except (TokenFileError, CertificateError) as error:
        raise StartError(str(error)) from None
    if settings.fetch_hosts:
        import h11  # noqa: F401, PLC0415 - of an extra
