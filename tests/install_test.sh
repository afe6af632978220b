#!/usr/bin/env bash
# install_test.sh SOURCE BUILD   Installs the build into a temporary folder, then configures, builds and runs
# examples/own_layer against it, as a stranger would.
set -euo pipefail
source="$1"
build="$2"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

quietly() {
  if ! "$@" >"$scratch/log" 2>&1; then
    cat "$scratch/log" >&2
    echo "failed: $*" >&2
    exit 1
  fi
}

quietly cmake --install "$build" --prefix "$scratch/installed"
"$scratch/installed/bin/distbelief" --version

cp -r "$source/examples/own_layer" "$scratch/own_layer"
quietly cmake -G Ninja -S "$scratch/own_layer" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/installed" \
  -DCMAKE_CXX_FLAGS=-Wall\ -Wextra\ -Werror
if grep -rqF "$source" "$scratch/installed/lib/"*"/cmake" "$scratch/installed/lib/cmake" 2>/dev/null; then
  echo "the installed CMake files point back into $source" >&2
  exit 1
fi
quietly cmake --build "$scratch/build"
"$scratch/build/own_layer"
