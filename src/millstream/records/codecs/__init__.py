"""One codec per file, each with `compress(view)` and `unpack(view, limit_bytes)`.

Unpacking is bounded, and gives its output in parts.
"""
