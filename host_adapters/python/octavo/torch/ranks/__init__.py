"""Parts for a model that trains on several ranks."""
