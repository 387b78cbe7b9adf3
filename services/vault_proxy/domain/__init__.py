"""The vault proxy's rules: which request may go where, and with which credential. Pure."""
