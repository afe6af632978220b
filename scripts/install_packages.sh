#!/usr/bin/env bash
# scripts/install_packages.sh GROUP...   Installs what is missing of these groups of packages.txt.
#
# As root it installs; otherwise it prints the one command to run and ends with 2. When nothing is missing it neither
# needs rights nor a network.
set -euo pipefail
list="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/packages.txt"

wanted=()
for group in "$@"; do
  mapfile -t names < <(awk -v group="$group:" '/^##/ { inside = ($2 == group); next } /^#/ || NF == 0 { next }
                                               inside { print $1 }' "$list")
  if [[ ${#names[@]} -eq 0 ]]; then
    echo "install_packages.sh: $list has no group '$group'" >&2
    exit 2
  fi
  wanted+=("${names[@]}")
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is no Debian system. Install what stands for these packages, then build with cmake: ${wanted[*]}" >&2
  exit 2
fi

missing=()
for name in "${wanted[@]}"; do
  status="$(dpkg-query -W -f='${db:Status-Status}\n' "$name" 2>/dev/null || true)"
  if ! grep -qx installed <<<"$status"; then
    missing+=("$name")
  fi
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

if [[ $(id -u) -ne 0 ]]; then
  echo "Some packages are missing. Run this, then start again:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 2
fi

echo "installing ${#missing[@]} packages: ${missing[*]}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "install_packages.sh: apt-get failed; its last lines are above" >&2
  exit 2
fi
