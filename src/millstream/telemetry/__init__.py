"""What the broker tells of itself: figures, events and traces."""
