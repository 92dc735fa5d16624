"""What a client of a cluster can be told, by the names that librdkafka and Java's clients use.

Settings are values: they can be pickled, and travel to where the client is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.client.kafka.address import parse_addresses
from millstream.errors import InvalidSetting

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_JAAS_VALUE = r'\b{}\s*=\s*"((?:[^"\\]|\\.)*)"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How a broker and its client come to trust each other."""

    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str = ""
    password: str = field(default="", repr=False)
    ca_location: str = ""
    """A file of certificates to trust; without it, those that the system trusts."""
    certificate_location: str = ""
    key_location: str = ""
    key_password: str = field(default="", repr=False)
    checks_host: bool = True
    """Whether the certificate must be for the host that we connect to."""

    def __post_init__(self) -> None:
        _one_of("security.protocol", self.protocol, PROTOCOLS)
        if self.has_sasl:
            _one_of("sasl.mechanism", self.mechanism, MECHANISMS)
            if not self.username:
                raise InvalidSetting(
                    name="sasl.username",
                    value=self.username,
                    expected=f"a name, as security.protocol is {self.protocol}",
                )

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Where the cluster is, who we are, and how long we wait."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    client_id: str = "millstream"
    timeout_s: float = 30.0
    """How long anything may take, with the time in which brokers are away."""
    security: Security = field(default_factory=Security)

    def __post_init__(self) -> None:
        parse_addresses(self.bootstrap)
        if self.timeout_s <= 0:
            raise InvalidSetting(name="timeout_s", value=self.timeout_s, expected="more than 0")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ClusterSettings:
        """Settings by their names elsewhere. Raises InvalidSetting, also for what is not known."""
        for name in options:
            _one_of("option", name, OPTION_NAMES)
        username, password = _jaas(options.get("sasl.jaas.config", ""))
        security = Security(
            protocol=options.get("security.protocol", "PLAINTEXT").upper(),
            mechanism=(
                options.get("sasl.mechanism") or options.get("sasl.mechanisms") or "PLAIN"
            ).upper(),
            username=options.get("sasl.username", username),
            password=options.get("sasl.password", password),
            ca_location=options.get("ssl.ca.location", ""),
            certificate_location=options.get("ssl.certificate.location", ""),
            key_location=options.get("ssl.key.location", ""),
            key_password=options.get("ssl.key.password", ""),
            checks_host=_checks_host(options),
        )
        return cls(
            bootstrap=options.get("bootstrap.servers", DEFAULT_BOOTSTRAP),
            client_id=options.get("client.id", "millstream"),
            timeout_s=_timeout_ms(options) / 1000,
            security=security,
        )


OPTION_NAMES = (
    "bootstrap.servers",
    "client.id",
    "default.api.timeout.ms",
    "sasl.jaas.config",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidSetting(name=name, value=value, expected=f"one of {', '.join(known)}")


def _checks_host(options: Mapping[str, str]) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    algorithm = options.get(name, "https").lower()
    # Java's clients switch it off with nothing, librdkafka with the word.
    _one_of(name, algorithm, ("https", "none", ""))
    return algorithm == "https"


def _timeout_ms(options: Mapping[str, str]) -> int:
    name = "default.api.timeout.ms"
    text = options.get(name, "30000")
    if not text.isdigit() or int(text) == 0:
        raise InvalidSetting(name=name, value=text, expected="milliseconds, more than 0")
    return int(text)


def _jaas(config: str) -> tuple[str, str]:
    """The user and the password in a line of Java's login configuration."""
    if not config:
        return "", ""
    found = [re.search(_JAAS_VALUE.format(name), config) for name in ("username", "password")]
    if not all(found):
        raise InvalidSetting(
            name="sasl.jaas.config",
            value="(hidden)",
            expected='a login module with username="..." password="...";',
        )
    username, password = (re.sub(r"\\(.)", r"\1", match[1]) for match in found if match)
    return username, password
