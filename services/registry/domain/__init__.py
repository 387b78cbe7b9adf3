"""What a definition may say and how it changes: pure functions over the contract's messages."""
