#!/usr/bin/env bash
# Which thread mode is faster for which model: both in turn, several rounds, medians. exec/thread_mode.cc holds the
# conclusion, so that a run does not depend on a measurement.
#   bench/thread_modes.sh [threads]
set -euo pipefail
cd "$(dirname "$0")/.."
threads=${1:-2}
rounds=5
engine=build/release/bench_engine
[[ -x $engine ]] || { cmake --preset release && cmake --build --preset release --target bench_engine; }

median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
speed() { "$engine" --case "$1" --threads "$threads" --thread-mode "$2" --seconds "$3" | grep -o '"samples_per_second": [0-9.]*' | cut -d' ' -f2; }

printf '%-12s %12s %12s   faster\n' case kernels lanes
for case in mlp lenet speech local-image resnet50; do
  seconds=2
  [[ $case == resnet50 ]] && seconds=10
  declare -A speeds=([kernels]="" [lanes]="")
  for ((round = 0; round < rounds; ++round)); do
    for mode in kernels lanes; do
      speeds[$mode]+="$(speed "$case" "$mode" "$seconds")"$'\n'
    done
  done
  kernels=$(printf '%s' "${speeds[kernels]}" | median)
  lanes=$(printf '%s' "${speeds[lanes]}" | median)
  printf '%-12s %12s %12s   %s\n' "$case" "$kernels" "$lanes" \
    "$(awk -v k="$kernels" -v l="$lanes" 'BEGIN {if (l > k) printf "lanes, %.2fx", l / k; else printf "kernels, %.2fx", k / l}')"
done
