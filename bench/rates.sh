#!/usr/bin/env bash
# Which learning rates converge through parameter servers: test accuracy of mlp on Fashion-MNIST after one epoch of
# Downpour, with a fixed rate (sgd) and with Adagrad in the servers' shards, in percent.
#   bench/rates.sh [--workers N] [--servers N] [--epochs N] [--rates "0.001 0.01 ..."] [--seed N]
# The guard against divergence is off: it would lower rates that are too high. "-": the loss became no number.
set -euo pipefail
cd "$(dirname "$0")/.."
workers=4 servers=2 epochs=1 seed=1 rates="0.0003 0.001 0.003 0.01 0.03 0.1 0.3 1"
while (($# > 0)); do
  case $1 in
    --workers) workers=$2 ;;
    --servers) servers=$2 ;;
    --epochs) epochs=$2 ;;
    --rates) rates=$2 ;;
    --seed) seed=$2 ;;
    *) echo "rates.sh: there is no option $1" >&2; exit 2 ;;
  esac
  shift 2
done
program=${DISTBELIEF_PROGRAM:-build/release/distbelief}
[[ -x $program ]] || scripts/build.sh release distbelief_program
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# accuracy RULE RATE
accuracy() {
  local status=0
  "$program" train --model mlp --data fashion-mnist --algorithm downpour --workers "$workers" --servers "$servers" \
    --n-push 2 --n-fetch 2 --batch 32 --epochs "$epochs" --optimizer "$1" --lr "$2" --divergence-guard off --seed "$seed" \
    --out "$out/$1-$2" >"$out/log" 2>&1 || status=$?
  if ((status == 3)); then
    echo "-"
  elif ((status != 0)); then
    cat "$out/log" >&2
    exit 1
  else
    sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' "$out/$1-$2/summary.json" | awk '{printf "%.1f\n", 100 * $1}'
  fi
}

printf '%-8s %8s %8s\n' rate sgd adagrad
for rate in $rates; do
  printf '%-8s %8s %8s\n' "$rate" "$(accuracy sgd "$rate")" "$(accuracy adagrad "$rate")"
done
