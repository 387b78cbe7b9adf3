"""Histories of a session service under faults: recorded, then judged by a pure checker."""
