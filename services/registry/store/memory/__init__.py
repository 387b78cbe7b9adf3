"""Memory stores in SQL: stores, memories, and every version of those."""
