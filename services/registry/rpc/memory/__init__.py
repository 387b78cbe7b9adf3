"""The three services of memory, in terms of the domain and the store."""
