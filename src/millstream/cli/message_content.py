"""What a message holds, as JSON: text where its bytes are UTF-8, base64 where they are not."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any


def content(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> dict[str, Any]:
    """Key, value and headers, as the broker's HTTP API has them."""
    shape: dict[str, Any] = {}
    for name, encoding, data in (("key", "key_encoding", key), ("value", "encoding", value)):
        shape[name], is_base64 = text_of(data)
        if is_base64:
            shape[encoding] = "base64"
    found: dict[str, list[Any]] = {}
    for name, data in headers:
        text, is_base64 = text_of(data)
        # What is not UTF-8 in a name has no place in JSON.
        known = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        found.setdefault(known, []).append({"base64": text} if is_base64 else text)
    shape["headers"] = {
        name: values[0] if len(values) == 1 else values for name, values in found.items()
    }
    return shape


def text_of(data: bytes | None) -> tuple[str | None, bool]:
    """Bytes as text, and whether that is base64."""
    if data is None:
        return None, False
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return b64encode(data).decode(), True
