"""TLS as the settings want it."""

from __future__ import annotations

import ssl

from millstream.client.kafka.settings import Security
from millstream.errors import InvalidSetting


def tls_context(security: Security) -> ssl.SSLContext:
    """What connections are wrapped with. Raises InvalidSetting for files that are no use."""
    try:
        context = ssl.create_default_context(cafile=security.ca_location or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(
            name="ssl.ca.location",
            value=security.ca_location,
            expected=f"a readable file of certificates in PEM ({error})",
        ) from error
    context.check_hostname = security.checks_host
    if security.certificate_location:
        try:
            context.load_cert_chain(
                security.certificate_location,
                security.key_location or None,
                security.key_password or None,
            )
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(
                name="ssl.certificate.location",
                value=security.certificate_location,
                expected=f"a readable certificate in PEM, with its key ({error})",
            ) from error
    return context
