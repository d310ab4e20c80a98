"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates; `ca` is the PEM file of its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(certificate.public_bytes(Encoding.PEM))

    def sign(self, name: str, *hosts: str, password: bytes | None = None) -> tuple[Path, Path]:
        """The PEM files of a certificate and its key.

        Args:
            name: Of the files, and of the holder.
            hosts: Names and addresses it is good for.
            password: Encrypts the key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._name, key)
        if hosts:
            names = [x509.IPAddress(ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        chain, secret = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        chain.write_bytes(certificate.public_bytes(Encoding.PEM))
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return chain, secret


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
