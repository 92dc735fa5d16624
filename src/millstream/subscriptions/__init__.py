"""Subscriptions: what each has handed out, and what was acknowledged of it. Pure."""
