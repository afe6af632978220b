#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compare/compared_run.h"
#include "metrics/machine.h"
#include "metrics/page.h"

namespace distbelief {

/// The folder of a comparison has a folder for each run, compare.json and compare.html. compare.json is written before
/// the first run begins and again after each, and knows all that is needed to go on.
struct Comparison {
  struct Entry {
    std::string label;
    std::string folder;  ///< its name inside the comparison's
  };
  std::string model;
  std::string data;
  std::uint64_t seed = 0;
  Measure measure = {};
  Machine machine = {};
  std::vector<Entry> entries = {};
  std::vector<ComparedRun> runs = {};  ///< of the entries, in their order

  /// Reads anew how far the runs are.
  void look(const std::filesystem::path& folder);
  bool is_over() const;
};

/// Throws FileError when there is no comparison or it is damaged. Runs are not looked at yet.
Comparison read_comparison(const std::filesystem::path& folder);

/// compare.json and compare.html. Throws FileError.
void write_comparison(const std::filesystem::path& folder, const Comparison& comparison);

std::string comparison_json(const Comparison& comparison);
/// One page that needs nothing else.
std::string comparison_html(const Comparison& comparison);
/// For a terminal: a heading and a row for each run.
std::vector<std::vector<std::string>> comparison_rows(const Comparison& comparison);

}  // namespace distbelief
