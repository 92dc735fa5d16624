"""Characters that are hard to type, as C writes them: \\n, \\t, \\r, \\0, \\\\ and \\xHH."""

from __future__ import annotations

import re

import typer

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_KNOWN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def unescaped(text: str, flag: str) -> bytes:
    """The bytes that are meant. A usage error for an escape that nobody knows."""

    def meant(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        if len(escape) == 3:
            return bytes.fromhex(escape[1:].decode())
        if escape not in _KNOWN:
            raise typer.BadParameter(
                f"\\{escape.decode(errors='replace')} in {text!r} for {flag}: give one of "
                "\\n, \\t, \\r, \\0, \\\\ and \\xHH"
            )
        return _KNOWN[escape]

    return _ESCAPE.sub(meant, text.encode(errors="surrogateescape"))
