"""The other services, as the session service needs them."""
