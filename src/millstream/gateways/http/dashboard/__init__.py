"""The dashboard: a page of the broker that shows what it does, and lets people act."""
