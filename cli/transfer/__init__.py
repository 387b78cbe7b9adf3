"""Whole sessions as files: one JSON object a line, the same bytes wherever they come from."""
