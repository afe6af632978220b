#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/json.h"
#include "base/print.h"
#include "commands.h"
#include "data/loader.h"
#include "data_options.h"
#include "metrics/format.h"
#include "models/network.h"
#include "text_layout.h"

namespace distbelief {
namespace {

struct DataArguments {
  std::string source;
  DataOptions reading;
  bool json = false;
};

DataRequest request_of(const DataArguments& arguments) {
  DataRequest request;
  request.source = arguments.source;
  arguments.reading.apply_to(request);
  return request;
}

void list(const DataArguments& arguments, const Terminal& terminal) {
  const std::vector<KnownData> known = known_data(request_of(arguments).folders);
  if (arguments.json) {
    Json root = Json::array();
    for (const KnownData& set : known) {
      root.push_back({{"name", set.name},
                      {"description", set.description},
                      {"train_samples", set.train_samples},
                      {"test_samples", set.test_samples},
                      {"folder", set.folder.string()},
                      {"how_to_get", set.how_to_get}});
    }
    print_out("{}\n", json_text(root, 2));
    return;
  }
  std::vector<std::vector<std::string>> rows = {{"name", "train", "test", "what it is"}};
  for (const KnownData& set : known) {
    rows.push_back({set.name, grouped(set.train_samples), grouped(set.test_samples),
                    set.description + (set.folder.empty() ? "\n  not here: " + set.how_to_get
                                                          : "\n  found in " + set.folder.string())});
  }
  rows.push_back(
      {"synthetic:...", "any", "any", "made on the fly, for trying things out: synthetic:classes=10,shape=3x32x32"});
  print_out("{}\n", table_text(rows, {1, 2}, terminal.width));
  print_out("{}\n", wrapped("Your own: a CSV, LIBSVM, NPY or IDX file, or a folder with one folder of images for each "
                            "class. 'distbelief data SOURCE' looks into one; docs/data.md has the details.",
                            0, terminal.width));
}

/// How many samples each class has; reads the whole part.
std::vector<std::uint64_t> class_counts(const Dataset& data) {
  std::vector<std::uint64_t> counts(static_cast<std::size_t>(data.spec().classes));
  Loader loader(data, Sampler(data.size(), 0, false), {.batch = 256, .end_epoch = 1});
  while (const Batch* batch = loader.next()) {
    for (const std::int32_t number : batch->classes) {
      ++counts[static_cast<std::size_t>(number)];
    }
  }
  return counts;
}

std::string bar(std::uint64_t count, std::uint64_t most) {
  constexpr std::uint64_t kLongest = 40;
  const std::uint64_t length = most == 0 ? 0 : (count * kLongest + most / 2) / most;
  return std::string(count > 0 ? std::max<std::uint64_t>(length, 1) : 0, '#');
}

void describe_one(const DataArguments& arguments, const Terminal& terminal) {
  const DataSplits splits = open_data(request_of(arguments));
  const SampleSpec& spec = splits.train->spec();
  const std::vector<std::string> names = splits.train->class_names();
  const auto name_of = [&](std::size_t c) { return c < names.size() ? names[c] : std::to_string(c); };
  const std::vector<std::uint64_t> train = class_counts(*splits.train);
  const std::vector<std::uint64_t> test =
      splits.test ? class_counts(*splits.test) : std::vector<std::uint64_t>(train.size());
  if (arguments.json) {
    Json root = {{"name", splits.name},
                 {"input", spec.input.dims()},
                 {"sparse", spec.sparse},
                 {"indices", spec.indices},
                 {"targets", spec.targets},
                 {"train_samples", splits.train->size()},
                 {"test_samples", splits.test ? splits.test->size() : 0},
                 {"classes", Json::array()}};
    for (std::size_t c = 0; c < train.size(); ++c) {
      root["classes"].push_back({{"name", name_of(c)}, {"train", train[c]}, {"test", test[c]}});
    }
    print_out("{}\n", json_text(root, 2));
    return;
  }
  print_out("name     {}\n", splits.name);
  print_out("samples  {}\n", describe(spec));
  print_out("train    {}\n", grouped(splits.train->size()));
  print_out("test     {}\n", splits.test ? grouped(splits.test->size()) : "none; --validation sets a part aside");
  if (train.empty()) {
    return;
  }
  constexpr std::size_t kMostRows = 100;
  const std::uint64_t most = *std::ranges::max_element(train);
  std::vector<std::vector<std::string>> rows = {{"class", "train", "test", ""}};
  for (std::size_t c = 0; c < std::min(train.size(), kMostRows); ++c) {
    rows.push_back({name_of(c), grouped(train[c]), grouped(test[c]), bar(train[c], most)});
  }
  print_out("\n{}", table_text(rows, {1, 2}, terminal.width));
  if (train.size() > kMostRows) {
    print_out("and {} more classes; --json has all\n", train.size() - kMostRows);
  }
}

}  // namespace

void add_data_command(CLI::App& app, const Terminal& terminal) {
  CLI::App* command = app.add_subcommand("data", "List the data sets that have names, or look into one");
  command->group("Look around");
  const auto arguments = std::make_shared<DataArguments>();  // shared with the callback
  command->add_option("SOURCE", arguments->source, "a name, a file, a folder or synthetic:...: what --data takes");
  add_test_data_option(*command, arguments->reading, "the test part, when SOURCE has none of its own");
  add_reading_options(*command, arguments->reading);
  command->add_flag("--json", arguments->json, "print JSON, for scripts")->group("Output");
  command->footer(
      "Examples:\n"
      "  distbelief data\n"
      "  distbelief data fashion-mnist\n"
      "  distbelief data table.csv --label-column species");
  command->callback([arguments, &terminal] {
    arguments->source.empty() ? list(*arguments, terminal) : describe_one(*arguments, terminal);
  });
}

}  // namespace distbelief
