"""Delta tables: a sink for streams and batches, a reader, and the way back into a topic."""
