"""The HTTP door: REST, the routes of Mini Pulsar and FastQueue2, server-sent events, WebSocket."""
