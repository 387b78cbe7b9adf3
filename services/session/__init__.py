"""SessionService: sessions, their logs and inboxes, leases, the live feed, and waking brains."""
