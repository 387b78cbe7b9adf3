"""Uploads: forms with files, streamed from a client to the service that stores them."""
