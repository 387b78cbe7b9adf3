"""Bytes that rows of the registry refer to: objects in a store, with their uses counted."""
