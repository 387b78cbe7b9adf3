"""The vault proxy: uses credentials for others, who never see them."""
