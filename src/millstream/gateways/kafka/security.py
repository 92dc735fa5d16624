"""What a client is told that asks for access rules: there are none."""

from __future__ import annotations

REASON = "this broker has no access rules: every client may do everything"
