"""What a session is and may do, without a database, a network or a clock of its own.

The rules run inside a store's transaction (`ports.Transaction`), so that they are the same over
every store. Of an event they read its type, the call it opens or answers, the permission and the
stop reason, and nothing else.
"""
