"""How the brain reaches a model: one port, the official SDK behind it, and the rehearsal model."""
