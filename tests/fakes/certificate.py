"""A certificate for this machine, made when it is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path) -> Path:
    """The key and the certificate in one file; the certificate alone is beside it.

    Both are in PEM: `both.pem` and `certificate.pem`. Skips the test where there is no openssl.
    """
    both, certificate = folder / "both.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(both), "-out", str(certificate)]
    try:
        subprocess.run([*command, *names, *files], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl to make a certificate with")
    both.write_text(both.read_text() + certificate.read_text())
    return both
