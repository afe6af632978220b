#!/bin/bash
# Compares this engine with PyTorch: the same models, batches and threads, in turn, on this machine.
#   bench/peers.sh                                  everything, about 20 minutes
#   bench/peers.sh --cases mlp,lenet --rounds 3     less; every option goes to bench/peers/compare.py (see its --help)
# Installs what is missing (as root; otherwise it says the command) and builds release if bench_engine is not there.
# libopenblas0-openmp belongs to PyTorch: with Debian's default BLAS its dense layers are twenty times slower.
set -euo pipefail
cd "$(dirname "$0")/.."

for argument in "$@"; do
  if [[ $argument == -h || $argument == --help ]]; then  # installs and builds nothing
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    exec /usr/bin/python3 bench/peers/compare.py --help
  fi
done

packages=()
for package in python3-torch python3-torchvision libopenblas0-openmp; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || packages+=("$package")
done
if ((${#packages[@]})); then
  if ((EUID == 0)); then
    echo "installing ${packages[*]}"
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null
  else
    echo "PyTorch, the peer, is missing. Please run:  sudo apt-get install -y ${packages[*]}" >&2
    exit 2
  fi
fi

build=build/release
ours_given=false
for argument in "$@"; do
  [[ $argument == --ours || $argument == --ours=* ]] && ours_given=true
done
if [[ $ours_given == false && ! -x $build/bench_engine ]]; then
  cmake --preset release
  cmake --build --preset release --target bench_engine
fi

exec /usr/bin/python3 bench/peers/compare.py "$@"
