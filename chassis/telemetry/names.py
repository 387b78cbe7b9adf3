"""Names of attributes that every process gives its spans, by OpenTelemetry's conventions."""

from __future__ import annotations

from typing import Final

ERROR_TYPE: Final = "error.type"
RPC_SYSTEM_NAME: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_RESPONSE_STATUS_CODE: Final = "rpc.response.status_code"
