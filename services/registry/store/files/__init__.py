"""Files in SQL, and their bytes in a store of objects."""
