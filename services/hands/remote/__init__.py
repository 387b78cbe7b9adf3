"""Calls that no sandbox runs: they go out through the vault proxy, which has the credentials."""
