"""A durable message log that speaks the Kafka wire protocol."""

from importlib.metadata import version

__version__ = version("millstream")
