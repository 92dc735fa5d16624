"""The client of Mini Pulsar, method for method, for the broker's HTTP door.

    client = PulsarClient("http://127.0.0.1:8000")
    client.create_producer("my-topic").send("Hello")
    consumer = client.subscribe("my-topic", "my-consumer")
    message = consumer.receive()
    consumer.acknowledge(message["message_id"])

A message that was received and not acknowledged is received again, also after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from millstream.errors import Unreachable

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 30.0


class PulsarClient:
    """Makes producers and consumers, which share its connections. Any thread may use it."""

    def __init__(self, base_url: str = "http://127.0.0.1:8000") -> None:
        # Here, so that who needs no HTTP does not pay for it.
        import httpx

        self.base_url = base_url.rstrip("/")
        self._http = httpx.Client(timeout=_TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_producer(self, topic: str) -> Producer:
        """The topic is created with its first message."""
        return Producer(self, topic)

    def subscribe(self, topic: str, consumer_id: str) -> Consumer:
        """Who comes back under a consumer id goes on where it has acknowledged to."""
        return Consumer(self, topic, consumer_id)

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, topic: str, path: str = "", **options: Any) -> httpx.Response:
        """A request about the messages of a topic. Raises Unreachable."""
        import httpx

        url = f"{self.base_url}/topics/{quote(topic, safe='')}/messages{path}"
        try:
            return self._http.request(method, url, **options)
        except httpx.TransportError as error:
            raise Unreachable(address=self.base_url, reason=str(error)) from error


class Producer:
    """Sends messages to one topic."""

    def __init__(self, client: PulsarClient, topic: str) -> None:
        self._client = client
        self.topic = topic

    def send(self, data: str) -> int:
        """Returns the message's id once it is on disk.

        Raises httpx.HTTPStatusError when the broker refuses it, Unreachable when there is none.
        """
        response = self._client.request("POST", self.topic, json={"data": data})
        response.raise_for_status()
        message_id: int = response.json()["message_id"]
        return message_id


class Consumer:
    """Receives the messages of one topic, one after the other."""

    def __init__(self, client: PulsarClient, topic: str, consumer_id: str) -> None:
        self._client = client
        self.topic = topic
        self.consumer_id = consumer_id

    def receive(self) -> dict[str, Any] | None:
        """The oldest message that is not acknowledged, with `message_id` and `data`.

        None when there is none. Raises httpx.HTTPStatusError, Unreachable.
        """
        response = self._client.request("GET", self.topic, params={"consumer_id": self.consumer_id})
        if response.status_code == 404:
            return None
        response.raise_for_status()
        message: dict[str, Any] = response.json()
        return message

    def acknowledge(self, message_id: int) -> None:
        """A message, and all before it, need not come again.

        Raises httpx.HTTPStatusError for one that there never was.
        """
        response = self._client.request(
            "POST", self.topic, f"/{message_id}/ack", params={"consumer_id": self.consumer_id}
        )
        response.raise_for_status()
