"""Grants of sessions: given, renewed, ended, and what they open at each request."""
