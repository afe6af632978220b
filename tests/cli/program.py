"""Runs the real program. Python's own library only."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from files import idx, idx_labels, npy, png  # noqa: E402, F401: for those who import this
from test_main import main  # noqa: E402, F401: likewise

PROGRAM = os.environ["DISTBELIEF_PROGRAM"]
CLASSES = "synthetic:classes=3,shape=1x6x6,samples=60,test=12"
SPARSE = "synthetic:kind=sparse,shape=40,samples=80,test=8"
REGRESSION = "synthetic:kind=regression,shape=4,targets=2,samples=60,test=6"


def merged(defaults, arguments):
    """Options and values that hold unless the arguments say otherwise, then the arguments."""
    kept = []
    for option, value in zip(defaults[::2], defaults[1::2]):
        if option not in arguments:
            kept += [option, value]
    return kept + arguments


class ProgramTest(unittest.TestCase):
    """Each test has a folder of its own, which is the program's working folder."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="distbelief-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, *arguments, environment=None):
        return subprocess.run(
            [PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "TERM": "xterm", **(environment or {})},
        )

    def succeed(self, *arguments, **options):
        done = self.run_program(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def train(self, out, *arguments, data=CLASSES, model="mlp"):
        sizes = ["--model-options", "hidden=8"] if model == "mlp" else []
        usual = ["--model", model, *sizes, "--data", data, "--epochs", 2, "--batch", 16, "--threads", 1, "--out", out]
        return self.succeed("train", *merged(usual, list(arguments)))

    def files(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def refuse(self, culprits, *arguments, code=2):
        """One line on standard error that names each of the culprits, and nothing written."""
        before = self.files()
        done = self.run_program(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("distbelief"), done.stderr)
        for culprit in culprits:
            self.assertIn(culprit, done.stderr)
        self.assertEqual(self.files(), before, "the program left something behind")
        return done.stderr
