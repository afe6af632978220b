#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "data/open.h"

namespace distbelief {

/// How data are found and read: options that several commands have, with the same names and words in each.
struct DataOptions {
  std::string test_data;
  std::string data_dir;
  std::string label_column;
  std::string split = "test";

  /// Puts what the user gave over what `request` says.
  void apply_to(DataRequest& request) const;
};

/// --data-dir and --label-column.
void add_reading_options(CLI::App& command, DataOptions& options,
                         const std::string& label_help = "CSV: the column that holds the class or target");
void add_test_data_option(CLI::App& command, DataOptions& options, const std::string& help);
void add_split_option(CLI::App& command, DataOptions& options, const std::string& help);

/// "3x224x224". Throws InputError that names --input.
Shape parse_shape(const std::string& text);

/// --batch and --threads of a command that computes with a trained model.
struct ComputeOptions {
  std::int64_t batch = 256;
  int threads = 0;  ///< 0: all
};
void add_compute_options(CLI::App& command, ComputeOptions& options);

}  // namespace distbelief
