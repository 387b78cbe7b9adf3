"""How Drover's processes talk: one server, one channel, one shape of errors."""
