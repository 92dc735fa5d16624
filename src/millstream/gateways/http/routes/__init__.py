"""The routes, one file per kind of thing; each translates, calls a use case and translates back."""
