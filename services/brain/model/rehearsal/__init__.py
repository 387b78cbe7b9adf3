"""The rehearsal model: a scripted, deterministic, offline server that speaks the Messages API.

It stands in when no model is configured, so that the first start of Drover drives real tools
through the very same client code. It says what it is in everything it answers.
"""
