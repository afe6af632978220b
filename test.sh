#!/usr/bin/env bash
# ./test.sh                    builds and runs all tests
# ./test.sh --full             also under ASan with UBSan and under TSan, with MPICH, and fuzzes every reader of files
# ./test.sh --soak [MINUTES]   tests in loops, kills and resumes, long fuzzing: MINUTES (60) for each fuzz target
#
# The last line is the number of test cases: "N passed, N failed". Ends with 0 when none failed.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$root"

mode=default
fuzz_seconds=6
soak_minutes=60
case "${1:-}" in
  "") ;;
  --full) mode=full ;;
  --soak)
    mode=soak
    soak_minutes="${2:-60}"
    if ! [[ $soak_minutes =~ ^[1-9][0-9]*$ ]]; then
      echo "test.sh: --soak takes whole minutes for each fuzz target, not '$soak_minutes'" >&2
      exit 2
    fi
    fuzz_seconds=$((soak_minutes * 60))
    ;;
  *)
    sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
export TMPDIR="$scratch"  # whatever a killed test leaves goes with it
passed=0
failed=0

# build PRESET TARGET...: a build that fails is a failure, and what comes after it is left out.
build() {
  if ! scripts/build.sh "$@"; then
    failed=$((failed + 1))
    return 1
  fi
}

# run PRESET SECONDS [CTEST ARGUMENT...]: at most SECONDS for each test program.
run() {
  local preset="$1" limit="$2" began=$SECONDS log="$root/build/$1/test.log" junit counts
  shift 2
  junit="$(mktemp)"
  local status=0
  ctest --test-dir "build/$preset" -j2 --timeout "$limit" --output-on-failure --no-tests=error --output-junit "$junit" \
    --test-output-size-passed 4000000 --test-output-size-failed 4000000 "$@" >"$log" 2>&1 || status=$?
  if [[ $status -ne 0 ]]; then
    grep -vE '^ *[0-9]+/[0-9]+ Test.*Passed|^ *Start ' "$log" | tail -n 200 >&2 || true
  fi
  if ! counts="$(scripts/count_tests.py "$junit")"; then
    counts="0 1"
  fi
  read -r good bad <<<"$counts"
  if [[ $status -ne 0 && $bad -eq 0 ]]; then
    bad=1
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  echo "tested $preset in $((SECONDS - began)) s: $good passed, $bad failed"
}

# fuzz SECONDS: every target for so long, two at a time, from the seeds in tests/data/fuzz/TARGET.
fuzz() {
  local seconds="$1" began=$SECONDS targets target
  mapfile -t targets < <(cd build/fuzz && printf '%s\n' *_fuzz)
  fuzz_one() {
    local target="$1" seeds=() folder="$scratch/fuzz/$1"
    mkdir -p "$folder/corpus" "$folder/artifacts"
    if [[ -d "$root/tests/data/fuzz/$target" ]]; then
      seeds=("$root/tests/data/fuzz/$target")
    fi
    if ! "$root/build/fuzz/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="$folder/artifacts/" "$folder/corpus" "${seeds[@]}" >"$folder/log" 2>&1; then
      mkdir -p "$root/build/fuzz/found/$target"
      cp -r "$folder/artifacts/." "$folder/log" "$root/build/fuzz/found/$target/"
      touch "$folder/failed"
    fi
  }
  for target in "${targets[@]}"; do
    while [[ $(jobs -rp | wc -l) -ge 2 ]]; do
      wait -n || true
    done
    fuzz_one "$target" &
  done
  wait
  for target in "${targets[@]}"; do
    if [[ -e "$scratch/fuzz/$target/failed" ]]; then
      tail -n 30 "$scratch/fuzz/$target/log" >&2
      echo "$target failed; the input that does it is in $root/build/fuzz/found/$target" >&2
      failed=$((failed + 1))
    else
      passed=$((passed + 1))
    fi
  done
  echo "fuzzed ${#targets[@]} targets in $((SECONDS - began)) s"
}

groups=(build test)
if [[ $mode != default ]]; then
  groups+=(full)
fi
scripts/install_packages.sh "${groups[@]}"

if [[ $mode == full ]]; then
  export DISTBELIEF_TEST_CHAOS_SECONDS=120
fi
if build dev; then
  run dev 600
  if [[ $mode == soak ]]; then
    # Each case many times in a new order, then kills at new moments.
    GTEST_REPEAT=100 GTEST_SHUFFLE=1 run dev 7200 -LE process
    DISTBELIEF_TEST_KILLS=200 DISTBELIEF_TEST_SEED=$RANDOM run dev 7200 -R train_process
    DISTBELIEF_TEST_STARTS=100 run dev 7200 -R failure_process
    DISTBELIEF_TEST_CHAOS_SECONDS=6000 DISTBELIEF_TEST_SEED=$RANDOM run dev 7200 -R chaos_process
  fi
fi
unset DISTBELIEF_TEST_CHAOS_SECONDS
if [[ $mode != default ]]; then
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
  export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$root/tests/tsan.supp"
  if build asan test_programs distbelief_program; then
    # MPI has tests enough in the other builds, and so have jobs whose parts are all run by other tests here.
    DISTBELIEF_TEST_TRANSPORTS="threads socket" run asan 900 -LE build \
      -E '^(compare_process|hosts_process|partition_process_Partition|served_process_(Sparse|Algorithms))$'
  fi
  # The other MPI: ranks of its own, and jobs.
  if build mpich distbelief_program mpi_test_programs; then
    DISTBELIEF_TEST_TRANSPORTS=mpi run mpich 900 -R '^(mpi|job_process|partition_process_.*|sandblaster_process|served_process_.*)$'
  fi
  # What runs threads of its own. OpenMP's runtime is not instrumented; std threads stand in for it in this build.
  if build tsan threaded_test_programs; then
    run tsan 900 -L threads
  fi
  if build fuzz fuzzers; then
    fuzz "$fuzz_seconds"
  fi
fi

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
