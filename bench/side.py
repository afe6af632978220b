"""One side of a comparison: a process that stays alive and answers lines with lines."""

import json
import os
import queue
import shlex
import signal
import subprocess
import tempfile
import threading
import time


def peer_environment():
    """What PyTorch needs to be at its best: an OpenBLAS that is older than the processor takes it for one without wide vectors,
    and is then three to five times slower than it need be."""
    if "OPENBLAS_CORETYPE" in os.environ:
        return {}
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
        flags = set(next((line for line in cpuinfo if line.startswith("flags")), "").split())
    told = subprocess.run(["/usr/bin/python3", "-c", "import torch"], env={**os.environ, "OPENBLAS_VERBOSE": "2"},
                          capture_output=True, text=True, check=False)
    if "Core: Prescott" not in told.stdout + told.stderr:
        return {}
    if "avx512f" in flags:
        return {"OPENBLAS_CORETYPE": "SKYLAKEX"}
    return {"OPENBLAS_CORETYPE": "HASWELL"} if "avx2" in flags else {}


class SideFailed(Exception):
    """One side cannot go on; the message is what its reader should see."""


class Side:
    """A process that says "ready", answers each line with one JSON line, and ends at "quit". Every wait has a deadline; a
    side that fails is killed with its group."""

    QUIT_SECONDS = 30

    def __init__(self, name, arguments, threads=1, ready_seconds=300):
        self.name, self.ready_deadline = name, ready_seconds
        self.stderr = tempfile.TemporaryFile()
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        if arguments[0].endswith("python3"):
            environment |= peer_environment()
        if os.geteuid() == 0:  # Open MPI's launcher asks twice
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.started = time.monotonic()
        try:
            self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=self.stderr, env=environment, start_new_session=True, text=True)
        except OSError as error:
            self.stderr.close()
            raise SideFailed(f"cannot start {shlex.join(arguments)}: {error.strerror}") from error
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), line.strip()))
        self.lines.put((time.monotonic(), None))

    def fail(self, what):
        # A process that closed its output is about to end; wait briefly, to tell its exit code.
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            pass
        code = self.process.poll()
        self.kill()
        self.stderr.seek(0)
        text = self.stderr.read().decode(errors="replace").strip().splitlines()
        message = what + (f" (exit code {code})" if code is not None else "")
        raise SideFailed(message + ("; it said: " + " | ".join(text[-3:]) if text else ""))

    def _line(self, seconds, waiting_for):
        """The next line and when it came."""
        try:
            when, line = self.lines.get(timeout=seconds)
        except queue.Empty:
            self.fail(f"waited {seconds:.0f} s in vain for {waiting_for}")
        if line is None:
            self.fail(f"ended before {waiting_for}")
        return when, line

    def _json(self, line, key):
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict) or key not in message:
            self.fail(f"expected a JSON line with {key!r}, got {line[:200]!r}")
        return message

    def _send(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            self.fail(f"ended before {line!r}")

    def wait_ready(self):
        """Returns what it said before it was ready: JSON messages with an "event", by that, each with its time."""
        deadline, events = self.started + self.ready_deadline, {}
        while True:
            when, line = self._line(max(0.1, deadline - time.monotonic()), "'ready'")
            if line == "ready":
                self.ready_seconds = when - self.started
                return events
            events[self._json(line, "event")["event"]] = when - self.started

    def ask(self, line, key, seconds):
        """The answer to `line`, a JSON message with `key`, which comes within `seconds`."""
        self._send(line)
        return self._json(self._line(seconds, f"the answer to {line!r}")[1], key)

    def quit(self, key=None):
        """Ends it, and returns its last message when it has one with `key`."""
        self._send("quit")
        final = self._json(self._line(self.QUIT_SECONDS, "the final line")[1], key) if key else None
        try:
            if self.process.wait(self.QUIT_SECONDS) != 0:
                self.fail("failed at the end")
        except subprocess.TimeoutExpired:
            self.fail(f"still running {self.QUIT_SECONDS:.0f} s after its end")
        return final

    def kill(self):
        """Ends what is left of the process and of its children. Harmless when it has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()


def machine():
    """What the figures were measured on."""
    model = "unknown"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "load_before": os.getloadavg()[0]}


def write_json(path, result):
    """Written beside and renamed, so that a reader never sees half a file."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path + ".part", "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def print_rows(headings, rows):
    """A table of text; the first column to the left, the others to the right."""
    lines = [headings, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    for line in lines:
        print("  ".join(text.ljust(width) if i == 0 else text.rjust(width)
                        for i, (text, width) in enumerate(zip(line, widths))).rstrip())
