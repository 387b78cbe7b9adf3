"""Clients of the services that hands call."""
