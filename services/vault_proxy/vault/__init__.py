"""Vaults in use: secrets are sealed on their way in, opened for their use, and told of nowhere."""
