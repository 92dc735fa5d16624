"""Settings: values with a name, a default and a range, one class per component."""

from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings

__all__ = ["LogSettings", "StorageSettings"]
