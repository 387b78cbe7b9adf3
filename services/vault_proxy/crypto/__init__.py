"""Encryption of what is kept: an envelope around each secret, its key wrapped by a key provider."""
