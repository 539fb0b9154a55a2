"""What a model needs that trains on several ranks."""
