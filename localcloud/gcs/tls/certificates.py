# SPDX-License-Identifier: Apache-2.0
"""A throw-away certificate authority: made at start, trusted only by processes whose environment names it."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = timedelta(days=365)


@dataclass(frozen=True)
class Issued:
    """A certificate with its private key.

    :param certificate: the certificate.
    :param key: its private key.
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> bytes:
        """Return the certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        """Return the private key as PEM."""
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def server_context(folder: Path, hosts: list[str]) -> tuple[ssl.SSLContext, Path]:
    """Return a TLS server context for some host names, and the file of authorities that makes clients accept it.

    The file also holds the machine's usual authorities: a client that uses it still reaches everything else.

    :param folder: created if missing; key and certificates are written there.
    :param hosts: names, wildcards allowed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = _authority()
    leaf = _leaf(authority, hosts)
    bundle = folder / "ca.pem"
    bundle.write_bytes(authority.pem() + _usual_authorities())
    chain = folder / "server.pem"
    with os.fdopen(os.open(chain, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(leaf.pem() + leaf.key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain)
    return context, bundle


def _usual_authorities() -> bytes:
    path = ssl.get_default_verify_paths().cafile
    return b"\n" + Path(path).read_bytes() if path and Path(path).exists() else b""


def _authority() -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Local cloud throw-away authority")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return Issued(builder.sign(key, hashes.SHA256()), key)


def _leaf(authority: Issued, hosts: list[str]) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(hosts[0]), authority.certificate.subject, key)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    builder = builder.add_extension(names, critical=False).add_extension(issuer, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    # The machine's own time, not the local cloud's clock: the clients that check the dates look at that one.
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LIFE)
    )
