"""Memory stores: what an agent keeps from one session to the next, and the history of it."""
