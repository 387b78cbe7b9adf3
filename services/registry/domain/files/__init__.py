"""Files: how they are named, what is kept of them, and who may have their bytes."""
