"""Git for sandboxes: which requests are a repository's, and how they get its token (ADR 24)."""
