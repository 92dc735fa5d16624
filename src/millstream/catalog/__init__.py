"""What topics there are, as a value: pure transitions, replayed from the catalog's own topic."""

from millstream.catalog.catalog import Catalog, CatalogRecord, TopicEntry, apply, replay

__all__ = ["Catalog", "CatalogRecord", "TopicEntry", "apply", "replay"]
