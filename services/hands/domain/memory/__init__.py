"""What is known of the memory stores in a sandbox's directories, and what follows from it."""
