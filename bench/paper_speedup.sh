#!/usr/bin/env bash
# bench/paper_speedup.sh [PROGRAM]   The figure of Dean et al., "Large Scale Distributed Deep Networks", 2012: how much
# faster one network is on many machines than on one, as the planner's simulator has it. Nothing is trained, and no
# network is allocated. The paper: speech 2.2 times at 8 machines and slower beyond; the largest image network over 12
# times at 81.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
program="${1:-$root/build/release/distbelief}"
machines="${MACHINES:-1,2,4,8,16,32,64,81,128}"
network=(--bandwidth "${BANDWIDTH:-1Gbit}" --latency "${LATENCY:-100us}" --speed "${SPEED:-150G}")
image=(--model local-image --input 3x100x100 --classes 21000 --batch "${IMAGE_BATCH:-8}")

# The paper cuts layers and has no pipeline: one stage.
echo "== as in the paper, layers cut and no pipeline"
"$program" plan --model speech --batch "${SPEECH_BATCH:-100}" --stages 1 --speedup "$machines" "${network[@]}"
for parameters in 1.7e8 1.7e9; do
  "$program" plan "${image[@]}" --model-options "kernel=10,parameters=$parameters" --stages 1 --speedup "$machines" "${network[@]}"
done
echo "== whatever the planner finds best"
"$program" plan --model speech --batch "${SPEECH_BATCH:-100}" --speedup "$machines" "${network[@]}"
"$program" plan "${image[@]}" --model-options kernel=10,parameters=1.7e9 --speedup "$machines" "${network[@]}"
