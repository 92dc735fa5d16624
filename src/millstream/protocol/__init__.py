"""Kafka's messages on the wire: declared once per API, compiled per version at first use."""
