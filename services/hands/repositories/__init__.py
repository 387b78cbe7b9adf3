"""Repositories that a session's hands begin with."""
