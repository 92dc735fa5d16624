"""Which names groups, their members and protocols can have: those that a record can hold."""

from __future__ import annotations

from typing import Final

from millstream.errors import InvalidName
from millstream.groups.commands import Join

LONGEST_TEXT_BYTES: Final = 32767
"""What a record can hold of a name; requests can hold more."""


def check_group_id(group_id: str) -> None:
    """Raises InvalidName."""
    if not group_id:
        raise InvalidName(kind="group", name=group_id, expected="a name that is not empty")
    check_text("group", group_id)


def check_texts(command: Join) -> None:
    """Everything that a record will hold must fit into one. Raises InvalidName."""
    check_text("static member", command.instance_id or "")
    check_text("client", command.client_id)
    check_text("protocol type", command.protocol_type)
    for protocol in command.protocols:
        check_text("protocol", protocol.name)


def check_text(kind: str, text: str) -> None:
    """Raises InvalidName."""
    # A character is at most four bytes: most texts need not be encoded to see that they fit.
    if len(text) * 4 > LONGEST_TEXT_BYTES and len(text.encode()) > LONGEST_TEXT_BYTES:
        expected = f"at most {LONGEST_TEXT_BYTES} bytes"
        raise InvalidName(kind=kind, name=text[:40] + "...", expected=expected)
