"""Whether a server could let anyone in, asked before its model is loaded."""

from __future__ import annotations

from twinlens.server.access.certificates import CertificateError, certificate_files, read_certificates
from twinlens.server.access.token_file import TokenFileError, read_tokens
from twinlens.server.core.active import StartError
from twinlens.server.settings import Settings


def check_access(settings: Settings) -> None:
    """Reads the files of tokens and certificates that are set.

    Raises:
        StartError: one line saying what is wrong with them.
    """
    try:
        if settings.tokens is not None:
            read_tokens(settings.tokens)
        if (files := certificate_files(settings)) is not None:
            read_certificates(files)
    except (TokenFileError, CertificateError) as error:
        raise StartError(str(error)) from None
