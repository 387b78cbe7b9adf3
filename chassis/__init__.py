"""What every Drover process shares: bootstrap, channels, settings, errors, ids, telemetry, storage.

Nothing here knows the business of any one service, and importing this package does no work.
"""
