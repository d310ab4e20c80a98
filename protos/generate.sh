#!/bin/sh
# Writes the Python code of protos/twinlens/v1 below $1 (default: beside the .proto files).
# Run through `make proto`, which puts the pinned generators on the PATH.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
mkdir -p "$out"
cd "$here"
python -m grpc_tools.protoc -I . --python_out="$out" --grpc_python_out="$out" \
    --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" twinlens/v1/*.proto
