"""Sandboxes of a Kubernetes cluster."""

from __future__ import annotations
