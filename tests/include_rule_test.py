#!/usr/bin/env python3
"""include_rule_test.py ROOT   Who may include whom: sources, src/CMakeLists.txt and ARCHITECTURE.md must agree."""
import pathlib
import re
import sys
import unittest

from test_main import main

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
ONEDNN_FOLDERS = {"tensor", "graph", "exec"}


def table_of_architecture():
    """{folder: set of folders} from the rows "| `folder/` | what it owns | may include |"."""
    rows = {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        row = re.match(r"\| `(\w+)/` \|.*\| ([^|]*) \|$", line)
        if row:
            rows[row[1]] = set(re.findall(r"\w+", row[2])) - {"nothing"}
    return rows


def modules_of_cmake():
    """{folder: set of MODULES} from src/CMakeLists.txt."""
    modules = {}
    text = (ROOT / "src/CMakeLists.txt").read_text()
    for call in re.findall(r"^distbelief_module\(([^)]*)\)", text, re.M):
        words = call.split()
        listed = set()
        if "MODULES" in words:
            for word in words[words.index("MODULES") + 1:]:
                if word.isupper() or "_LIBRARIES" in word:
                    break
                listed.add(word)
        modules[words[0]] = listed
    return modules


def sources(folder):
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cc"))


def included_folders():
    """{folder: {included folder: a file that does it}} over src/, without a folder's own headers."""
    edges = {}
    for path in sources("src"):
        folder = path.relative_to(ROOT / "src").parts[0]
        for header in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.M):
            if "/" not in header:
                raise AssertionError(f'{path}: #include "{header}": expected "folder/file.h"')
            target = header.split("/")[0]
            if target != folder:
                edges.setdefault(folder, {})[target] = path
        edges.setdefault(folder, {})
    return edges


def reachable(folder, table):
    """All that `folder` may include: what its row lists, what those list in turn, and base."""
    seen = {"base"}
    waiting = list(table[folder])
    while waiting:
        other = waiting.pop()
        if other not in seen:
            seen.add(other)
            waiting.extend(table.get(other, ()))
    return seen


class IncludeRule(unittest.TestCase):
    def setUp(self):
        self.table = table_of_architecture()

    def test_every_folder_has_a_row(self):
        folders = {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}
        self.assertEqual(folders, set(self.table))

    def test_architecture_and_cmake_agree(self):
        self.assertEqual(self.table, modules_of_cmake())

    def test_sources_keep_the_rule(self):
        for folder, targets in included_folders().items():
            allowed = reachable(folder, self.table)
            for target, path in targets.items():
                self.assertIn(target, allowed, f"{path} includes {target}/, which {folder}/ may not")

    def test_every_permission_is_used(self):
        edges = included_folders()
        for folder, listed in self.table.items():
            for target in listed:
                self.assertIn(target, edges[folder], f"{folder}/ may include {target}/, but nothing in it does")

    def test_the_rule_has_no_cycle(self):
        for folder in self.table:
            for other in self.table[folder]:
                self.assertNotIn(folder, reachable(other, self.table), f"{folder}/ and {other}/ need each other")

    def test_only_the_engine_includes_onednn(self):
        for path in sources("src") + sources("apps"):
            parts = path.relative_to(ROOT).parts
            if re.search(r"^\s*#\s*include [<\"]dnnl", path.read_text(), re.M):
                self.assertTrue(parts[0] == "src" and parts[1] in ONEDNN_FOLDERS, f"{path} includes oneDNN")

    def test_only_its_transport_includes_mpi_and_asio(self):
        for header, home in (("mpi.h", "mpi"), ("asio", "socket")):
            for path in sources("src") + sources("apps"):
                if re.search(rf"^\s*#\s*include [<\"]{header}", path.read_text(), re.M):
                    self.assertEqual(path.relative_to(ROOT).parts[:3], ("src", "transport", home), path)

    def test_nothing_prints_that_throws_where_it_cannot(self):
        for path in sources("src") + sources("apps"):
            if re.search(r"\bfmt::print(ln)?\(|std::c(out|err)\b", path.read_text()):
                self.fail(f"{path}: expected the functions of base/print.h")


if __name__ == "__main__":
    main()
