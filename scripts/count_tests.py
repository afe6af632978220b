#!/usr/bin/env python3
"""count_tests.py JUNIT.xml...   Prints "PASSED FAILED" over single test cases.

ctest knows programs; people want to know cases. What a program printed (GoogleTest's or unittest's last lines) says how
many it ran; a program that says nothing of the kind is one case. Cases that were skipped are listed on stderr: they are
in neither number.
"""
import re
import sys
import xml.etree.ElementTree


def count(case):
    """(passed, failed, names of skipped) of one of ctest's tests."""
    output = case.findtext("system-out") or ""
    name = case.get("name")
    broken = case.get("status") != "run"
    if case.get("status") in ("notrun", "disabled"):
        reason = re.search(r"^not run: (.*)$", output, re.M)  # tests/test_main.py says it
        return (0, 0, [f"{name}: {reason[1]}"]) if reason else (0, 1, [])
    ran = re.search(r"^\[=+\] (\d+) tests? from \d+ test suites? ran", output, re.M)
    if ran:
        total = int(ran[1])
        failed = sum(map(int, re.findall(r"^\[  FAILED  \] (\d+) tests?, listed below", output, re.M)))
        skipped = set(re.findall(r"^\[  SKIPPED \] (\S+)$", output, re.M))
    else:
        ran = re.search(r"^Ran (\d+) tests? in ", output, re.M)
        total = int(ran[1]) if ran else 1
        failed = sum(map(int, re.findall(r"(?:failures|errors)=(\d+)", output.rsplit("Ran ", 1)[-1]))) if ran else 0
        skipped = set(re.findall(r"^not run: (\S+): ", output, re.M)) if ran else set()
    if broken and failed == 0:
        failed = 1  # it crashed, hung or leaked: what it counted before that does not help it
        total = max(total, 1)
    return total - failed - len(skipped), failed, [f"{name}: {case_name}" for case_name in sorted(skipped)]


def main():
    passed = failed = 0
    for path in sys.argv[1:]:
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            good, bad, skipped = count(case)
            passed += good
            failed += bad
            for name in skipped:
                print(f"not run: {name}", file=sys.stderr)
    print(passed, failed)


main()
