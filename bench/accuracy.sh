#!/usr/bin/env bash
# Test accuracy of every algorithm against one process: lenet on Fashion-MNIST, rate 0.05 with momentum 0.9 and a cosine,
# at 2 and 4 workers. Goals: allreduce and sync within 0.5 points of one process, all others within 1.
#   bench/accuracy.sh [--algorithms "allreduce ..."] [--transport socket|mpi|threads] [--epochs N] [--seeds N]
#                     [--workers "2 4"] [--out DIR]
# All take the same number of samples a step over all workers: --batch is divided by their number where it is each
# worker's own. Through parameter servers each of these small batches is an update: there the rate is divided too, or
# Adam in the shards takes the place of momentum, as gradients that are late are momentum of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
transport=socket epochs=5 seeds=1 worker_counts="2 4" batch=128 out=
algorithms="allreduce sync averaging gossip async downpour softsync"
while (($# > 0)); do
  case $1 in
    --algorithms) algorithms=$2 ;;
    --transport) transport=$2 ;;
    --epochs) epochs=$2 ;;
    --seeds) seeds=$2 ;;
    --workers) worker_counts=$2 ;;
    --out) out=$2 ;;
    *) echo "accuracy.sh: there is no option $1" >&2; exit 2 ;;
  esac
  shift 2
done
program=${DISTBELIEF_PROGRAM:-build/release/distbelief}
[[ -x $program ]] || scripts/build.sh release distbelief_program
if [[ -z $out ]]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"

rate=0.05 momentum=0.9
# accuracy NAME OPTION...: mean test accuracy over the seeds, in percent
accuracy() {
  local name=$1 seed
  shift
  for ((seed = 1; seed <= seeds; ++seed)); do
    "$program" train --model lenet --data fashion-mnist --epochs "$epochs" --lr "$rate" --momentum "$momentum" --schedule cosine \
      --weight-decay 0.0005 --seed "$seed" --out "$out/$name-$seed" "$@" >"$out/$name-$seed.log" 2>&1 ||
      { cat "$out/$name-$seed.log" >&2; return 1; }
    sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' "$out/$name-$seed/summary.json"
  done | awk '{sum += $1} END {printf "%.2f", 100 * sum / NR}'
}

one=$(accuracy one --batch "$batch")
printf '%-10s %7s %9s %10s %6s\n' algorithm workers accuracy difference goal
printf '%-10s %7d %9.2f\n' local 1 "$one"
for workers in $worker_counts; do
  for algorithm in $algorithms; do
    own=$batch goal=0.5 more=() rate=0.05 momentum=0.9
    case $algorithm in
      averaging) own=$((batch / workers)) goal=1 more=(--average-every 10) ;;
      gossip) own=$((batch / workers)) goal=1 ;;
      async) own=$((batch / workers)) goal=1 momentum=0.8 rate=$(awk "BEGIN {print 0.08 / $workers}") ;;
      downpour)
        own=$((batch / workers)) goal=1 rate=0.0007 momentum=0 more=(--servers 2 --optimizer adam --warm-start 200) ;;
      softsync)  # divides the rate by the staleness, which is about n, or workers - 1 where that is less
        own=$((batch / workers)) goal=1 rate=0.02 more=(--n 2) ;;
    esac
    found=$(accuracy "$algorithm-$workers" --algorithm "$algorithm" --workers "$workers" --transport "$transport" \
      --batch "$own" "${more[@]}")
    printf '%-10s %7d %9.2f %+10.2f %6s\n' "$algorithm" "$workers" "$found" "$(awk "BEGIN {print $found - $one}")" \
      "$(awk "BEGIN {d = $found - $one; print (d < -$goal) ? \"missed\" : \"met\"}")"
  done
done
