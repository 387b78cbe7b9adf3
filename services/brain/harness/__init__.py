"""Harnesses: what turns a log into the next request, chosen per agent by name."""
