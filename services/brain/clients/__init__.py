"""Clients of the services that a brain calls: the session's lease and the hands."""
