"""What the resources of the HTTP API have in common: pages, presence, metadata, repetition."""
