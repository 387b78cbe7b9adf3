"""Memory stores as live directories of sandboxes: each follows the other."""
