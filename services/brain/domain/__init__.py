"""The pure half of the brain: the log folded into state, and the state into a decision."""
