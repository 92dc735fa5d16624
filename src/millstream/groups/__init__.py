"""Consumer groups: pure state machines, persisted in `__consumer_offsets` by whoever runs them."""
