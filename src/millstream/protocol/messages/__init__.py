"""The messages, one module per API. `millstream.protocol.apis` imports them one at a time."""
