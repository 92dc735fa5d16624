"""Doors: each translates a protocol to the broker's use cases, and knows nothing of the others."""
