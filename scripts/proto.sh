#!/usr/bin/env bash
# Everything that is done with the contract in proto/.
#
#   proto.sh generate [DIR]   writes the generated code to DIR (default proto/gen)
#   proto.sh lint             lints it and checks its format
#   proto.sh breaking         compares it with the last release, if there is one
#   proto.sh fresh            fails unless proto/gen is what `generate` would write
#
# google/api comes from the installed googleapis-common-protos, so that nothing is fetched and
# nothing vendored. PYTHON names the interpreter that has the tools (default .venv/bin/python).
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
bin=$(cd "$(dirname "$python")" && pwd)
python=$bin/$(basename "$python")
PATH=$bin:$PATH
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sources() { (cd "$1" && find drover -name '*.proto' | LC_ALL=C sort); }

# image ROOT FILE: the contract under ROOT, compiled with all it imports.
image() {
  # shellcheck disable=SC2046  # proto paths hold no spaces
  "$python" -m grpc_tools.protoc -I"$1" -I"$site" --include_imports --include_source_info \
    --descriptor_set_out="$2" $(sources "$1")
}

generate() {
  mkdir -p "$1"
  rm -rf "$1/drover"
  # shellcheck disable=SC2046
  "$python" -m grpc_tools.protoc -Iproto -I"$site" --python_out="$1" --grpc_python_out="$1" \
    --mypy_out="quiet:$1" --mypy_grpc_out="quiet:$1" $(sources proto)
  # protoc writes a _grpc module for every file; those without a service hold nothing.
  find "$1" -name '*_pb2_grpc.py' | while read -r module; do
    grep -q 'class .*Stub' "$module" || rm -f "$module" "${module}i"
  done
}

case ${1:-} in
  generate)
    [ -n "${2:-}" ] || buf format -w
    generate "${2:-proto/gen}"
    ;;
  lint)
    buf format --diff --exit-code
    image proto "$scratch/contract.binpb"
    buf lint "$scratch/contract.binpb" --path drover
    ;;
  breaking)
    if ! release=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
      echo "proto: nothing is released yet, so nothing can break"
      exit 0
    fi
    git archive "$release" proto | tar -x -C "$scratch"
    image proto "$scratch/now.binpb"
    image "$scratch/proto" "$scratch/then.binpb"
    buf breaking "$scratch/now.binpb" --against "$scratch/then.binpb" --path drover
    ;;
  fresh)
    generate "$scratch/gen"
    if ! diff -r -x __pycache__ -q proto/gen/drover "$scratch/gen/drover"; then
      echo "proto: proto/gen is not what the contract generates: run 'make proto'" >&2
      exit 1
    fi
    ;;
  *)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
