"""What is brought into a session's sandboxes, and attends to it there."""
