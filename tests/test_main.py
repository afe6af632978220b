"""The end of each test program in Python: like unittest.main(), but what could not run is listed by name."""

import unittest


class ListsWhatDidNotRun(unittest.TextTestResult):
    """A line "not run: NAME: why" for each test that was skipped; scripts/count_tests.py counts them by it."""

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        name = test.id().removeprefix("__main__.")
        self.stream.writeln(f"not run: {name}: {reason}")


def main():
    unittest.main(testRunner=unittest.TextTestRunner(resultclass=ListsWhatDidNotRun, verbosity=2))
