"""Weights and gradients that a backend keeps in slots."""
