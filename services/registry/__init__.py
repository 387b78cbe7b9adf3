"""The registry: definitions that sessions refer to. It runs nothing."""
