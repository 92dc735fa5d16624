"""One codec per file, each with `compress(view)` and a bounded `decompress(view, limit_bytes)`."""
