#!/usr/bin/env bash
# scripts/tidy.sh [FILE|FOLDER...]   Runs clang-tidy with the checks of .clang-tidy, two files at a time.
#
# Of folders, all sources but tests: their macros take longest and say least. Without arguments: what differs from the
# last commit. A header is looked at with the sources that include it, so a changed one stands for the .cc beside it.
# Takes about ten seconds a file. Ends with 1 when something was found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install_packages.sh build test tidy

files=()
for place in "$@"; do
  if [[ -d $place ]]; then
    mapfile -t -O ${#files[@]} files < <(find "$place" -name '*.cc' ! -name '*_test.cc' | sort)
  else
    files+=("$place")
  fi
done
if [[ $# -eq 0 ]]; then
  mapfile -t files < <({ git diff --name-only --diff-filter=d HEAD; git ls-files --others --exclude-standard; } |
    sed -n 's/\.\(cc\|h\)$/.cc/p' | sort -u | xargs -r ls -d 2>/dev/null)
fi
if [[ ${#files[@]} -eq 0 ]]; then
  echo "tidy: no C++ sources to look at"
  exit 0
fi

cmake --preset tidy >/dev/null
status=0
printf '%s\n' "${files[@]}" | xargs -P 2 -n 1 clang-tidy -p build/tidy --quiet 2> >(grep -v ' warnings\? generated' >&2) ||
  status=1
echo "tidy: looked at ${#files[@]} files, $([[ $status -eq 0 ]] && echo "found nothing" || echo "see above")"
exit $status
