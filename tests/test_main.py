"""The end of each test program in Python: like unittest.main(), but says what could not run and what took long."""

import sys
import time
import unittest

LONG = 5  # seconds


class ListsWhatDidNotRun(unittest.TextTestResult):
    """A line "not run: NAME: why" for each test that was skipped; scripts/count_tests.py counts them by it. Says which took long."""

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        seconds = time.monotonic() - self.began
        if seconds > LONG:
            self.stream.writeln(f"    {seconds:.0f} s")
        super().stopTest(test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        name = test.id().removeprefix("__main__.")
        self.stream.writeln(f"not run: {name}: {reason}")


def main(why_not=None):
    """`why_not`, if given, returns why none of the tests can run here, or None."""
    reason = why_not() if why_not is not None else None
    if reason is not None:
        print(f"not run: {reason}")
        sys.exit(77)
    unittest.main(testRunner=unittest.TextTestRunner(resultclass=ListsWhatDidNotRun, verbosity=2))
