"""Limits and timings of every connection between Drover's processes."""

from __future__ import annotations

from typing import Final

# The largest body that the HTTP API takes is 32 MB (ENDPOINTS §0); a page of events may hold two.
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
# Error details travel in trailers, whose default limit of 8 KiB a long message could pass.
MAX_METADATA_BYTES: Final = 64 * 1024

_COMMON: Final = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", 2 * MAX_METADATA_BYTES),
    # What is on its way of a stream nobody reads. gRPC would have it grow, to many MiB, by itself.
    ("grpc.http2.lookahead_bytes", 256 * 1024),
    ("grpc.http2.bdp_probe", 0),
    # A peer that is cut off is found within 8 s; one that gave this connection up, so soon after it
    # is reached again, even by who only waits for an answer (tests/fault, F26).
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # of a process that hangs; a minute otherwise
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER: Final = (
    *_COMMON,
    # Below the peers' keepalive time, or the server takes their pings for an attack.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.so_reuseport", 0),  # a second process on the same port is a mistake
)

CHANNEL: Final = (
    *_COMMON,
    # A restarted peer is found at once; gRPC would wait up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),  # its variables in the environment are for the outside world
)
