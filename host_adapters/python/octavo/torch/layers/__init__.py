"""Modules that compute through a backend, and how octavo.prepare finds them."""
