"""The other services, as the vault proxy needs them."""
