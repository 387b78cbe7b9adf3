"""Files of sessions: copies of uploads, which their sandboxes may read."""
