#!/usr/bin/env python3
"""Draws docs/softsync.svg from what build/release/softsync_study wrote, and prints the table of docs/softsync.md.

bench/study/plot.py [RESULTS.json ...] [--out FILE.svg]

Several files are runs of one study with different seeds.
"""

import argparse
import collections
import json
import pathlib
import statistics

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 980, 700
INK, PALE, GRID = "#222222", "#666666", "#e4e4e4"
PLAIN, DIVIDED, HARD = "#c0392b", "#1f6fa8", "#444444"
REDS = ["#e8a598", "#d9705f", "#8e2215"]
BLUES = ["#93c3e0", "#4893c6", "#0d4a78"]


class Panel:
    """A rectangle of the picture with axes; x and y are in the units of the data."""

    def __init__(self, left, top, width, height, x_range, y_range):
        self.box, self.x_range, self.y_range, self.parts = (left, top, width, height), x_range, y_range, []

    def x(self, value):
        low, high = self.x_range
        return self.box[0] + self.box[2] * (value - low) / (high - low)

    def y(self, value):
        low, high = self.y_range
        return self.box[1] + self.box[3] * (1 - (value - low) / (high - low))

    def text(self, x, y, words, anchor="middle", color=PALE, size=12, extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
                          f'font-size="{size}" {extra}>{words}</text>')

    def frame(self, title, x_title, y_title, x_ticks, y_ticks):
        left, top, width, height = self.box
        self.text(left, top - 16, title, "start", INK, 14, 'font-weight="bold"')
        for value, words in y_ticks:
            y = self.y(value)
            self.parts.append(f'<path d="M{left} {y:.1f}h{width}" stroke="{GRID}"/>')
            self.text(left - 8, y + 4, words, "end")
        for value, words in x_ticks:
            self.text(self.x(value), top + height + 18, words)
        self.parts.append(f'<path d="M{left} {top + height}h{width}" stroke="{PALE}"/>')
        self.text(left + width / 2, top + height + 38, x_title)
        x, y = left - 42, top + height / 2
        self.text(x, y, y_title, extra=f'transform="rotate(-90 {x} {y})"')

    def line(self, points, color, dash="", width=2):
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{width}" '
                          f'stroke-linejoin="round" stroke-dasharray="{dash}"/>')

    def dot(self, x, y, color, radius=4.0):
        self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}" fill="{color}"/>')

    def legend(self, x, y, entries):
        """At this place of the picture, entries of (words, color, dash), one below the other."""
        width = 40 + 6.5 * max(len(words) for words, _, _ in entries)
        self.parts.append(f'<rect x="{x - 6}" y="{y - 12}" width="{width:.0f}" height="{18 * len(entries) + 6}" '
                          'fill="white" fill-opacity="0.85"/>')
        for i, (words, color, dash) in enumerate(entries):
            height = y + 18 * i
            self.parts.append(f'<path d="M{x} {height}h22" stroke="{color}" stroke-width="2.5" '
                              f'stroke-dasharray="{dash}"/>')
            self.text(x + 28, height + 4, words, "start", INK)


def percent_ticks(values):
    return [(value, f"{value} %") for value in values]


def read(files):
    """The settings, and the runs by (n, rate); n of hardsync is 0."""
    runs = collections.defaultdict(list)
    settings = None
    for file in files:
        study = json.loads(file.read_text())
        here = {key: value for key, value in study.items() if key != "runs"}
        if settings not in (None, here):
            raise SystemExit(f"plot.py: {file} has other settings than the files before: {here}, not {settings}")
        settings = here
        for run in study["runs"]:
            runs[run["n"], run["rate"]].append(run)
    return settings, runs


def errors(runs):
    return [100 * run["error"] for run in runs]


def draw_errors(panel, ns, runs):
    ticks = [(0, "hardsync")] + [(place + 1, str(n)) for place, n in enumerate(ns)]
    panel.frame("Test error at the end", "n (a dot is a run, lines join medians)", "test error", ticks,
                percent_ticks(range(0, 101, 20)))
    hard = statistics.median(errors(runs[0, "plain"]))
    panel.line([(panel.x_range[0], hard), (panel.x_range[1], hard)], HARD, "3 4", 1.2)
    dots = [(0, value, HARD) for value in errors(runs[0, "plain"])]
    for rate, color, aside in (("plain", PLAIN, -0.12), ("by staleness", DIVIDED, 0.12)):  # beside, not behind each other
        points = [(place + 1 + aside, errors(runs[n, rate])) for place, n in enumerate(ns)]
        panel.line([(x, statistics.median(values)) for x, values in points], color, "", 1.5)
        dots += [(x, value, color) for x, values in points for value in values]
    for x, value, color in dots:
        panel.dot(x, value, color)
    panel.legend(panel.box[0] + 20, panel.y(64), [("plain rate", PLAIN, ""), ("rate / staleness", DIVIDED, "")])


def curve(run, most):
    """Errors by samples; a run that ended early stays where it was."""
    points = [(0, 90)] + [(point[0], 100 * point[2]) for point in run["points"]]
    return points if points[-1][0] >= most else points + [(most, points[-1][1])]


def draw_curves(panel, ns, runs):
    most = panel.x_range[1]
    step = most / 6
    panel.frame("On the way, every run", "samples", "test error",
                [(step * i, f"{step * i / 1000:.0f}k" if i else "0") for i in range(7)],
                percent_ticks(range(0, 101, 20)))
    entries = []
    for rate, shades, words in (("plain", REDS, "plain"), ("by staleness", BLUES, "/ staleness")):
        for n, color in zip(ns, shades):
            for run in runs[n, rate]:
                panel.line(curve(run, most), color, "", 1.3)
            entries.append((f"n = {n}, {words}", color, ""))
    for run in runs[0, "plain"]:
        panel.line(curve(run, most), HARD, "5 4", 1.3)
    entries.append(("hardsync", HARD, "5 4"))
    panel.legend(panel.x(0.62 * most), panel.y(78), entries)


def histogram(runs):
    counts = collections.Counter()
    for run in runs:
        counts.update(dict(run["staleness"]["histogram"]))
    return counts


def draw_staleness(panel, ns, runs):
    counts = {n: histogram(runs[n, "by staleness"]) for n in ns}
    shares = {n: {value: count / sum(of.values()) for value, count in of.items()} for n, of in counts.items()}
    panel.frame("Staleness of the gradients", "updates between taking the values and pushing the gradient (dots: means)",
                "share of pushes", [(value, str(value)) for value in range(0, int(panel.x_range[1]) + 1, 5)],
                percent_ticks(range(0, 101, 20)))
    colors = ["#7b3294", "#c2578c", "#e08a3c", "#7ba23f", "#2a9d8f", "#1f4e79"]
    entries = []
    for n, color in zip(ns, colors):
        panel.line([(value, 100 * shares[n].get(value, 0)) for value in range(max(shares[n]) + 1)], color)
        mean = sum(value * share for value, share in shares[n].items())
        panel.dot(mean, 0, color)
        entries.append((f"n = {n}: mean {mean:.1f}, most {max(shares[n])}", color, ""))
    panel.legend(panel.x(0.7 * panel.x_range[1]), panel.y(88), entries)


def draw(settings, ns, runs):
    left = Panel(70, 60, 380, 230, (-0.5, len(ns) + 0.5), (0, 100))
    draw_errors(left, ns, runs)
    right = Panel(570, 60, 380, 230, (0, settings["samples"] * settings["epochs"]), (0, 100))
    draw_curves(right, [n for n in ns if n > 1][-3:], runs)
    most = max(run["staleness"]["max"] for n in ns for run in runs[n, "by staleness"])
    below = Panel(70, 400, 880, 230, (0, most + 1), (0, 100))
    draw_staleness(below, ns, runs)
    body = "\n".join(part for panel in (left, right, below) for part in panel.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="sans-serif">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
            f'{body}\n</svg>\n')


def error_words(runs):
    """Each run's, as the mean of runs that fail and runs that do not says nothing; an asterisk: not finite."""
    return " · ".join(f"{100 * run['error']:.1f}{'' if run['finite'] else '*'}" for run in runs)


def print_table(settings, ns, runs):
    print("| | gradients an update | updates | staleness: mean | most | virtual time "
          "| error, plain rate | error, rate / staleness |")
    print("|---|---|---|---|---|---|---|---|")
    for n in [0, *ns]:
        full = runs[n, "by staleness" if n else "plain"]
        gathered = settings["learners"] // n if n else settings["learners"]
        mean = statistics.mean(run["staleness"]["mean"] for run in full)
        print(f"| {f'n = {n}' if n else 'hardsync'} | {gathered} | {full[0]['updates']:,} | {mean:.2f} | "
              f"{max(run['staleness']['max'] for run in full)} | "
              f"{statistics.mean(run['virtual_time'] for run in full):.0f} | {error_words(runs[n, 'plain'])} | "
              f"{error_words(full) if n else ''} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=pathlib.Path, default=[ROOT / "bench/results/softsync.json"])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/softsync.svg")
    arguments = parser.parse_args()
    settings, runs = read(arguments.results)
    ns = sorted({n for n, _ in runs if n})
    missing = [(n, rate) for n in ns for rate in ("plain", "by staleness") if not runs[n, rate]]
    if missing or not ns or not runs[0, "plain"]:
        raise SystemExit(f"plot.py: the study is not complete; without a run: {missing or 'hardsync, or every n'}")
    arguments.out.write_text(draw(settings, ns, runs))
    print_table(settings, ns, runs)


if __name__ == "__main__":
    main()
