"""Skills: what is uploaded as one, and the one archive that is made of it."""
