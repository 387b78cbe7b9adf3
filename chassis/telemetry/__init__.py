"""What a process tells about itself: JSON logs, OpenTelemetry traces, Prometheus metrics."""
