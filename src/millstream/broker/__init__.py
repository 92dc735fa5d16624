"""Use cases: everything that a door may ask the broker for."""
