"""Options by the names that people know, and what is wrong with some of them."""

from __future__ import annotations

import pytest

from millstream.client.kafka import ClusterSettings, Security
from millstream.client.kafka.address import Address, parse_addresses
from millstream.errors import InvalidSetting

JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="al\\"ice" password="a=b, c";'
)


def test_options_become_settings() -> None:
    settings = ClusterSettings.from_options(
        {
            "bootstrap.servers": "a:1,b:2",
            "client.id": "me",
            "default.api.timeout.ms": "1500",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.location": "ca.pem",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert settings == ClusterSettings(
        bootstrap="a:1,b:2",
        client_id="me",
        timeout_s=1.5,
        security=Security(
            protocol="SASL_SSL",
            mechanism="SCRAM-SHA-512",
            username="alice",
            password="secret",
            ca_location="ca.pem",
            checks_host=False,
        ),
    )
    assert "secret" not in repr(settings)


def test_no_options_are_a_broker_on_this_machine() -> None:
    assert ClusterSettings.from_options({}) == ClusterSettings()


def test_login_configuration_of_java_is_read() -> None:
    settings = ClusterSettings.from_options(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": JAAS}
    )
    assert (settings.security.username, settings.security.password) == ('al"ice', "a=b, c")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"boot.strap": "a:1"}, "option = 'boot.strap': expected one of bootstrap.servers"),
        ({"bootstrap.servers": "a"}, "bootstrap.servers = 'a'"),
        ({"bootstrap.servers": " , "}, "bootstrap.servers"),
        ({"bootstrap.servers": "a:99999"}, "bootstrap.servers"),
        ({"default.api.timeout.ms": "0"}, "default.api.timeout.ms = '0'"),
        ({"default.api.timeout.ms": "1s"}, "default.api.timeout.ms = '1s'"),
        ({"security.protocol": "TLS"}, "security.protocol = 'TLS'"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_SSL"}, "sasl.username"),
        ({"sasl.jaas.config": 'x required username="a";'}, "sasl.jaas.config"),
        ({"ssl.endpoint.identification.algorithm": "dns"}, "ssl.endpoint.identification"),
    ],
)
def test_wrong_option_is_told(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        ClusterSettings.from_options(options)
    assert told in str(caught.value)


def test_addresses_are_read_in_all_their_forms() -> None:
    assert parse_addresses("a:1, SASL_SSL://b.c:2,[::1]:3,") == [
        Address("a", 1),
        Address("b.c", 2),
        Address("::1", 3),
    ]
    assert str(Address("::1", 3)) == "[::1]:3"
