"""What goes back for one request: its answer, encoded in slices, or why there is none."""

from __future__ import annotations

import asyncio
import struct

from millstream.errors import TooManyElements
from millstream.gateways.kafka.answers import Parts
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.gateways.kafka.routes import Route
from millstream.protocol.apis import response_class
from millstream.protocol.codec import encode, encode_slices
from millstream.protocol.notation import Struct


async def answer(route: Route, request: Struct, context: Context) -> list[bytes]:
    """The answer to a request; after each slice of it others have their turn."""
    slices = encode_slices(await route.handle(request, context), context.version)
    encoded = [next(slices)]
    for each in slices:
        encoded.append(each)
        await asyncio.sleep(0)
    return encoded


def refusal(error: TooManyElements, api_key: int, version: int) -> bytes:
    """The answer to a request that was not read to its end.

    Most answers tell errors for each thing that was asked for, of which nothing is known here: then
    raises the error, which ends the connection.
    """
    response = response_class(api_key)
    code = response.FIELDS.get("error_code")
    if code is None or not code.exists_in(version):
        raise error
    told: dict[str, object] = {"error_code": code_of(error)}
    if "error_message" in response.FIELDS:
        told["error_message"] = str(error)
    return encode(response(**told), version)


def framed(header: bytes, body: list[bytes]) -> Parts:
    """An answer with its size and header."""
    size = len(header) + sum(map(len, body))
    return [b"".join([_pack_size(size), header, body[0]]), *body[1:]]


_pack_size = struct.Struct(">i").pack
