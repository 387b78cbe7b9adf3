"""The brain: the agent loop, context building and model clients; it owns nothing durable."""
