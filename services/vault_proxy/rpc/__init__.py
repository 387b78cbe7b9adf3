"""The vault proxy's gRPC services, one module per service."""
