"""Transactions: what the coordinator knows of each transactional id, and how it changes. Pure."""
