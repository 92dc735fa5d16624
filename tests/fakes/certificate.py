"""A certificate for this machine, made when it is needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import (
    BasicConstraints,
    CertificateBuilder,
    DNSName,
    IPAddress,
    Name,
    NameAttribute,
    SubjectAlternativeName,
    random_serial_number,
)
from cryptography.x509.oid import NameOID

_LIFETIME = timedelta(days=2)


def make_certificate(folder: Path) -> Path:
    """The key and the certificate in one file; the certificate alone is beside it.

    Both are in PEM: `both.pem` and `certificate.pem`. It is signed with its own key.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = Name([NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = SubjectAlternativeName([IPAddress(IPv4Address("127.0.0.1")), DNSName("localhost")])
    # Clocks differ a little.
    start = datetime.now(UTC) - timedelta(hours=1)
    certificate = (
        CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + _LIFETIME)
        .add_extension(names, critical=False)
        .add_extension(BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    both = folder / "both.pem"
    # Java reads keys in PKCS #8 only.
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both.write_bytes(secret + certificate)
    (folder / "certificate.pem").write_bytes(certificate)
    return both
