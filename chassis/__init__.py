"""What every process shares, and nothing of any one service. Importing it does no work."""
