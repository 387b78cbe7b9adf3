from __future__ import annotations

import itertools
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from grpc_tools import protoc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chassis.telemetry import tracing
from drover.api.v1 import annotations_pb2  # noqa: F401  # the imported file must be in the pool

PROTO = Path(__file__).parents[3] / "proto"
NUMBERS = itertools.count()
WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"


@pytest.fixture
def spans(monkeypatch):
    """Turns tracing on; answers the spans that have ended so far."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_provider", provider)
    return exporter.get_finished_spans


@pytest.fixture
def compile_proto(tmp_path):
    """Compiles the body of a proto file; answers its messages by name."""

    def compile_file(body: str) -> dict[str, type[Message]]:
        name = f"probe_{next(NUMBERS)}"  # the pool of descriptors outlives the test
        source = tmp_path / f"{name}.proto"
        source.write_text(
            f'syntax = "proto3"; package {name}; import "drover/api/v1/annotations.proto"; {body}'
        )
        out = tmp_path / f"{name}.bin"
        arguments = [
            f"-I{tmp_path}",
            f"-I{PROTO}",
            f"-I{WELL_KNOWN}",
            f"--descriptor_set_out={out}",
            str(source),
        ]
        assert protoc.main(["protoc", *arguments]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
        pool = descriptor_pool.Default()
        for file in files:
            pool.Add(file)
        descriptors = pool.FindFileByName(files[-1].name).message_types_by_name
        return {
            key: message_factory.GetMessageClass(descriptor)
            for key, descriptor in descriptors.items()
        }

    return compile_file
