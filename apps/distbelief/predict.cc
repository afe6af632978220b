#include <algorithm>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "checks.h"
#include "commands.h"
#include "data/formats/image_folder.h"
#include "data/loader.h"
#include "data_options.h"
#include "loaded_model.h"
#include "output_file.h"
#include "prediction_rows.h"

namespace distbelief {
namespace {

struct PredictArguments {
  std::string model;
  std::vector<std::string> inputs;
  DataOptions reading;
  std::string format;
  std::string out;
  std::int64_t top = 1;
  ComputeOptions computing;
};

struct Input {
  std::shared_ptr<const Dataset> data;
  std::string prefix;  ///< tells samples of several inputs apart
};

/// All inputs, opened before the first is computed: a mistake in the last one shows at once. Image files that follow
/// each other are one data set.
std::vector<Input> open_inputs(const PredictArguments& arguments, const ModelCard& card) {
  std::vector<Input> opened;
  std::vector<std::filesystem::path> images;
  const auto take_images = [&] {
    if (!images.empty()) {
      opened.push_back({open_model_images(card, images), ""});
      images.clear();
    }
  };
  for (const std::string& input : arguments.inputs) {
    if (is_image_file(input) && std::filesystem::is_regular_file(input)) {
      images.emplace_back(input);
      continue;
    }
    take_images();
    DataRequest request;
    request.source = input;
    request.labelled = false;
    arguments.reading.apply_to(request);
    const ModelData data = open_model_data(card, request);
    const bool test = arguments.reading.split == "test" && data.test != nullptr;
    opened.push_back({test ? data.test : data.train, arguments.inputs.size() > 1 ? data.name + ":" : ""});
  }
  take_images();
  return opened;
}

class Predictor {
 public:
  Predictor(LoadedModel& model, const PredictArguments& arguments)
      : model_(model), top_(static_cast<std::size_t>(arguments.top)), batch_(arguments.computing.batch) {}

  /// Calls visit(SamplePrediction) for each sample, in order.
  template <typename Visit>
  void run(const Input& input, const Visit& visit) {
    const Dataset& data = *input.data;
    Loader loader(data, Sampler(data.size(), 0, false), {.batch = batch_, .end_epoch = 1});
    while (const Batch* batch = loader.next()) {
      scores_.clear();
      model_.replica().predict(*batch, scores_);
      const std::size_t columns = scores_.size() / batch->ids.size();
      for (std::size_t i = 0; i < batch->ids.size(); ++i) {
        const std::string name = data.sample_name(batch->ids[i]);
        visit(describe(input.prefix + name, std::span(scores_).subspan(i * columns, columns)));
      }
    }
  }

 private:
  SamplePrediction describe(std::string sample, std::span<float> row) {
    SamplePrediction prediction{.sample = std::move(sample), .classes = {}, .values = {}};
    if (!model_.has_classes()) {
      model_.loss().to_probabilities(row);
      prediction.values = row;
      return prediction;
    }
    class_scores(model_.loss(), row, ranked_);
    order_.resize(ranked_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const std::size_t count = std::min(top_, order_.size());
    std::partial_sort(
        order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count), order_.end(),
        [&](std::size_t a, std::size_t b) { return ranked_[a] != ranked_[b] ? ranked_[a] > ranked_[b] : a < b; });
    for (std::size_t i = 0; i < count; ++i) {
      prediction.classes.push_back({order_[i], model_.class_name(order_[i]), ranked_[order_[i]]});
    }
    return prediction;
  }

  LoadedModel& model_;
  const std::size_t top_;
  const std::int64_t batch_;
  std::vector<float> scores_;
  std::vector<float> ranked_;
  std::vector<std::size_t> order_;
};

void refuse_to_replace_inputs(const PredictArguments& arguments) {
  std::vector<std::string> read = arguments.inputs;
  read.push_back(arguments.model);
  read.push_back((std::filesystem::path(arguments.model) / "model.safetensors").string());
  for (const std::string& path : read) {
    std::error_code ignored;
    if (!arguments.out.empty() && std::filesystem::equivalent(path, arguments.out, ignored)) {
      throw InputError(fmt::format("--out {}: this is what is read; choose another file", arguments.out));
    }
  }
}

void predict(const PredictArguments& arguments) {
  refuse_to_replace_inputs(arguments);
  LoadedModel model(arguments.model, arguments.computing);
  const std::vector<Input> inputs = open_inputs(arguments, model.card());
  const std::string format = !arguments.format.empty()          ? arguments.format
                             : arguments.out.ends_with(".json") ? "json"
                                                                : "csv";
  const auto rows = make_prediction_rows(format, model.loss().type() == "hinge" ? "score" : "probability");
  OutputFile out(arguments.out);
  Predictor predictor(model, arguments);
  bool begun = false;
  for (const Input& input : inputs) {
    predictor.run(input, [&](const SamplePrediction& prediction) {
      if (!begun) {
        out.write(rows->begin(prediction));
        begun = true;
      }
      out.write(rows->row(prediction));
    });
  }
  out.write(rows->end());
  out.commit();
}

}  // namespace

void add_predict_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "Use a trained model: the class or value of each sample");
  command->group("Train and use");
  const auto arguments = std::make_shared<PredictArguments>();  // shared with the callback
  command->add_option("MODEL|RUN", arguments->model, "a model.safetensors, or the folder of a run")->required();
  command
      ->add_option("INPUT", arguments->inputs,
                   "JPEG or PNG images, a folder of them, a CSV, LIBSVM, NPY or IDX file, or the name of a data set; "
                   "images are brought to the size the model was trained on")
      ->required();
  add_split_option(*command, arguments->reading, "which part of a data set that has parts [test]");
  add_reading_options(*command, arguments->reading, "CSV: a column to leave out, by name or number");
  command->add_option("--top", arguments->top, "show the K likeliest classes [1]")
      ->type_name("K")
      ->check(whole_number(1, 1 << 20))
      ->group("Output");
  command->add_option("--format", arguments->format, "how results are written [json for --out NAME.json, else csv]")
      ->check(one_of({"csv", "json"}))
      ->type_name("csv|json")
      ->group("Output");
  command->add_option("--out", arguments->out, "file for the results [standard output]")
      ->type_name("FILE")
      ->group("Output");
  add_compute_options(*command, arguments->computing);
  command->footer(
      "Examples:\n"
      "  distbelief predict runs/first shirt.png boot.jpg --top 3\n"
      "  distbelief predict runs/first fashion-mnist --out guesses.csv\n"
      "  distbelief predict model.safetensors table.csv --format json");
  command->callback([arguments] { predict(*arguments); });
}

}  // namespace distbelief
