"""Stand-ins for what Drover talks to, scripted by the tests."""
