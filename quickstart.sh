#!/usr/bin/env bash
# From a fresh clone to a trained network: installs what is missing, builds, trains lenet on Fashion-MNIST with Downpour
# SGD: two workers and two parameter servers.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$root"

"$root/scripts/install_packages.sh" build
"$root/scripts/build.sh" release distbelief_program
echo

program=build/release/distbelief
number=1
while [[ -e runs/quickstart-$number ]]; do
  number=$((number + 1))
done
run="runs/quickstart-$number"
"$program" train --algorithm downpour --workers 2 --servers 2 --model lenet --data fashion-mnist --epochs 4 --batch 64 \
  --lr 0.015 --momentum 0.9 --schedule cosine --weight-decay 0.0005 --out "$run"

cat <<END

All of it is in $root/$run:
  report.html        curves, layers, the machine; open it in a browser
  summary.json       the numbers, for scripts
  model.safetensors  the trained network
  run.yaml           what reproduces this run: $program train $run/run.yaml --out runs/again

Next, from $root:
  $program train --help
  $program train --model mlp --epochs 10 --optimizer adam --lr 0.001   # one process
  ./test.sh
END
