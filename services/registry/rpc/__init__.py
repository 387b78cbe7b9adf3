"""The registry's gRPC services, one module per resource."""
