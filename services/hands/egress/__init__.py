"""The only way out of a sandbox: a unix socket of its own, relayed to the vault proxy.

The socket is the sandbox's identity. Who connects to it is told nothing and holds no token: the
hands know which session the hand serves, and begin each connection to the proxy with that session's
grant. What passes is bytes to them; the proxy alone reads and judges it. What cannot be relayed is
refused: there is no other way (ADR 21).
"""
