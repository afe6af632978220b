#include "data_options.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "checks.h"

namespace distbelief {

void DataOptions::apply_to(DataRequest& request) const {
  if (!test_data.empty()) {
    request.test_source = test_data;
  }
  if (!data_dir.empty()) {
    request.folders = {data_dir};
  }
  if (!label_column.empty()) {
    request.label_column = label_column;
  }
}

void add_reading_options(CLI::App& command, DataOptions& options, const std::string& label_help) {
  command.add_option("--data-dir", options.data_dir, "where data sets that are not part of the system are looked for")
      ->type_name("DIR")
      ->group("Data");
  command.add_option("--label-column", options.label_column, label_help)->type_name("NAME")->group("Data");
}

void add_test_data_option(CLI::App& command, DataOptions& options, const std::string& help) {
  command.add_option("--test-data", options.test_data, help)->type_name("FILE|DIR")->group("Data");
}

void add_split_option(CLI::App& command, DataOptions& options, const std::string& help) {
  command.add_option("--split", options.split, help)
      ->type_name("test|train")
      ->check(one_of({"test", "train"}))
      ->group("Data");
}

void add_compute_options(CLI::App& command, ComputeOptions& options) {
  command.add_option("--batch", options.batch, "samples computed together [256]")
      ->type_name("N")
      ->check(whole_number(1, 1 << 20))
      ->group("Computing");
  command.add_option("--threads", options.threads, "compute threads; 0: all cores this process may use [0]")
      ->type_name("N")
      ->check(whole_number(0, 4096))
      ->group("Computing");
}

Shape parse_shape(const std::string& text) {
  std::vector<std::int64_t> dims;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    std::int64_t size = 0;
    const auto [stop, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || (stop < end && (*stop != 'x' || stop + 1 == end))) {
      throw InputError(fmt::format("--input {}: expected sizes of 1 or more with x between, such as 3x224x224", text));
    }
    dims.push_back(size);
    at = stop + 1;
  }
  return Shape(dims);
}

}  // namespace distbelief
