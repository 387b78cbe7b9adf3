"""The whole system in one process on a virtual clock: every run is a function of its seed.

Real code of the session service, the brains and the hands runs on a loop whose order of callbacks
is drawn from the seed. Replaced are the network, the disk, the sandboxes and the model, each by
something that delays, loses and fails as the seed says. See `run.simulate`.
"""
