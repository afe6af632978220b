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

# In memory, if there is room and programs may be run from there: tests would otherwise wait for a disk that builds keep busy.
make_scratch() {
  local folder free
  free="$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" || free=0
  if [[ ${free:-0} -gt 8000000 ]] && folder="$(mktemp -d /dev/shm/dbt.XXXXXX)"; then
    printf '#!/bin/sh\n' >"$folder/probe"
    chmod +x "$folder/probe"
    if "$folder/probe" 2>/dev/null; then
      rm "$folder/probe"
      echo "$folder"
      return
    fi
    rm -rf "$folder"
  fi
  mktemp -d
}
scratch="$(make_scratch)"
builder=
clean_up() {
  if [[ -n $builder ]]; then
    kill -- "-$builder" 2>/dev/null || true
  fi
  rm -rf "$scratch"
}
trap clean_up EXIT
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

# begin_builds "PRESET TARGET..."...: one after the other, behind the tests of those before, which mostly wait for each other.
begin_builds() {
  local what
  set -m  # a process group of its own, which ends as a whole
  for what in "$@"; do
    # shellcheck disable=SC2086
    if nice -n 19 scripts/build.sh $what; then
      touch "$scratch/built-${what%% *}"
    fi
  done &
  builder=$!
  set +m
}

# built PRESET: waits until it is; false, and a failure, when begin_builds has come to its end without it.
built() {
  local ended=0
  until [[ -e $scratch/built-$1 ]]; do
    if [[ $ended -eq 1 ]]; then
      failed=$((failed + 1))
      return 1
    fi
    sleep 1
    kill -0 "$builder" 2>/dev/null || ended=1
  done
}

# run PRESET SECONDS [CTEST ARGUMENT...]: at most SECONDS for each test program.
run() {
  local preset="$1" limit="$2" began=$SECONDS log="$root/build/$1/test.log" junit counts
  shift 2
  junit="$(mktemp)"
  local status=0
  # Three at a time on two cores: most of what processes do in tests is to wait for each other. Threads under TSan compute.
  local jobs=$((($(nproc) * 3 + 1) / 2))
  [[ $preset == tsan ]] && jobs=$(nproc)
  ctest --test-dir "build/$preset" -j"$jobs" --timeout "$limit" --output-on-failure --no-tests=error --output-junit "$junit" \
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
dev=(test_programs distbelief_program)
if [[ $mode != default ]]; then
  dev=(all)  # the benchmarks too
fi
if build dev "${dev[@]}"; then
  if [[ $mode != default ]]; then
    begin_builds "asan test_programs distbelief_program" "mpich distbelief_program mpi_test_programs" \
      "tsan threaded_test_programs" "fuzz fuzzers"
  fi
  run dev 900
  if [[ $mode == soak ]]; then
    # Each case many times in a new order, then kills at new moments.
    GTEST_REPEAT=100 GTEST_SHUFFLE=1 run dev 7200 -LE process
    DISTBELIEF_TEST_KILLS=200 DISTBELIEF_TEST_SEED=$RANDOM run dev 7200 -R train_process
    DISTBELIEF_TEST_STARTS=100 run dev 7200 -R failure_process
    DISTBELIEF_TEST_BLACKOUTS=50 DISTBELIEF_TEST_SEED=$RANDOM run dev 7200 -R blackout_process
    DISTBELIEF_TEST_CHAOS_SECONDS=6000 DISTBELIEF_TEST_SEED=$RANDOM run dev 7200 -R chaos_process
  fi
fi
unset DISTBELIEF_TEST_CHAOS_SECONDS
if [[ -n $builder ]]; then
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
  export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$root/tests/tsan.supp"
  if built asan; then
    # One of each kind of process and of each way to end (tests/CMakeLists.txt); MPI has tests enough in the other builds.
    DISTBELIEF_TEST_TRANSPORTS="threads socket" run asan 1500 -LE 'build|unsanitized'
  fi
  # The other MPI: ranks of its own, and jobs.
  if built mpich; then
    DISTBELIEF_TEST_TRANSPORTS=mpi run mpich 1500 -R '^(mpi|job_process_.*|partition_process_Partition|sandblaster_process|served_process_(Algorithms|Failures))$'
  fi
  # What runs threads of its own. OpenMP's runtime is not instrumented; std threads stand in for it in this build.
  if built tsan; then
    run tsan 1500 -L threads
  fi
  if built fuzz; then
    fuzz "$fuzz_seconds"
  fi
fi

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
