#!/usr/bin/env bash
# scripts/build.sh PRESET [TARGET...]   Configures and builds one preset of CMakePresets.json, quietly.
#
# A terminal sees one line that counts; everything goes to build/PRESET/build.log, whose end is shown when it fails.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
preset="$1"
shift
folder="build/$preset"
log="$folder/build.log"
mkdir -p "$folder"

failed() {
  tail -n 40 "$log" >&2
  echo "building $preset failed; all of its output is in $root/$log" >&2
  exit 1
}

# A tree that was moved or copied has a cache that points elsewhere.
fresh=()
if [[ -f "$folder/CMakeCache.txt" ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$folder/CMakeCache.txt"; then
  fresh=(--fresh)
fi
began=$SECONDS
cmake --preset "$preset" "${fresh[@]}" >"$log" 2>&1 || failed

targets=()
if [[ $# -gt 0 ]]; then
  targets=(--target "$@")
fi
export NINJA_STATUS='[%f/%t] '
if [[ -t 1 && ${TERM:-dumb} != dumb ]]; then
  count() {
    local line
    while IFS= read -r line; do
      if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
        printf '\rbuilding %s  %s of %s ' "$preset" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
      fi
    done
    printf '\r\033[K'
  }
  cmake --build --preset "$preset" "${targets[@]}" 2>&1 | tee -a "$log" | count || failed
else
  cmake --build --preset "$preset" "${targets[@]}" >>"$log" 2>&1 || failed
fi
echo "built $preset in $((SECONDS - began)) s"
