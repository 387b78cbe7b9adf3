"""What a session is given: repositories, files and memory stores (SEMANTICS §8)."""
