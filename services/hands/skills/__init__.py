"""Skills: those of a session's agent, and those that are found in its workspace."""
