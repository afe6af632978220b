// What PyTorch computes (tests/reference/torch_reference.py wrote it down) against what this program computes: layers,
// losses, update rules and whole models in training.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "exec/replica.h"
#include "graph/layer_run.h"
#include "graph/losses/loss_factory.h"
#include "models/layer_factory.h"
#include "params/parameter_shard.h"
#include "params/update_rule.h"
#include "plan/parameter_layout.h"

namespace distbelief {
namespace {

using Json = nlohmann::json;

/// The reference file: lists of cases and their tensors.
class Reference {
 public:
  Reference() : file_(std::filesystem::path(TEST_DATA_DIR) / "torch_reference.safetensors") {}

  Json list(const std::string& name) const { return Json::parse(file_.view().metadata().at(name)); }
  Shape shape(const std::string& tensor) const { return entry(tensor).shape; }
  std::vector<float> floats(const std::string& tensor) const {
    std::vector<float> values(static_cast<std::size_t>(entry(tensor).shape.elements()));
    file_.view().read(entry(tensor), values);
    return values;
  }
  std::vector<std::int32_t> integers(const std::string& tensor) const {
    const std::vector<float> values = floats(tensor);  // small ones, exact as floats
    return {values.begin(), values.end()};
  }
  bool is_integer(const std::string& tensor) const { return entry(tensor).type == ElementType::i32; }

 private:
  const TensorEntry& entry(const std::string& tensor) const {
    const TensorEntry* found = file_.view().find(tensor);
    if (found == nullptr) {
      throw FileError(file_.view().file() + ": no tensor '" + tensor + "'");
    }
    return *found;
  }

  SafetensorsFile file_;
};

const Reference& reference() {
  static const Reference loaded;
  return loaded;
}

/// A layer from the attributes that model files would give it.
LayerPtr layer_from(const Json& attributes, const std::string& name) {
  std::map<std::string, AttributeValue> values;
  const auto word = [](const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
  for (const auto& [key, value] : attributes.items()) {
    if (key == "type" || key == "name" || key == "inputs") {
      continue;
    }
    AttributeValue& made = values[key];
    made.is_list = value.is_array();
    if (value.is_array()) {
      for (const Json& item : value) {
        made.words.push_back(word(item));
      }
    } else {
      made.words.push_back(word(value));
    }
  }
  LayerAttributes given("reference", 0, name, std::move(values), {});
  return make_layer(attributes.at("type").get<std::string>(), given);
}

void expect_near(const std::vector<float>& ours, const std::vector<float>& theirs, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  double largest = 1;
  for (const float value : theirs) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_NEAR(ours[i], theirs[i], tolerance * largest) << what << ", element " << i;
  }
}

std::string title(const testing::TestParamInfo<Json>& test) {
  std::string name = test.param.at("name");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class PyTorchLayer : public testing::TestWithParam<Json> {};

void compare_with_case(const Json& test, bool blocked) {
  const Reference& file = reference();
  const std::string name = test.at("name");
  const bool training = test.at("mode") == "training";
  std::vector<ValueSpec> specs;
  for (const std::string tensor : test.at("inputs")) {
    specs.push_back({file.shape(tensor), file.is_integer(tensor) ? ValueKind::indices : ValueKind::dense});
  }
  const LayerPtr layer = layer_from(test.at("layer"), name);
  LayerRun run(*layer, specs, {.purpose = training ? Purpose::training : Purpose::inference, .blocked = blocked});
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::string tensor = test.at("inputs")[i];
    if (file.is_integer(tensor)) {
      run.indices = file.integers(tensor);
    } else {
      run.inputs[i] = file.floats(tensor);
    }
  }
  ASSERT_EQ(run.parameters.size(), test.at("parameters").size()) << name;
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const ParameterSpec& spec = run.parameter_specs()[i];
    const std::string tensor = test.at("parameters").at(spec.name);
    ASSERT_EQ(file.shape(tensor), spec.shape) << name << "." << spec.name;
    run.parameters[i] = file.floats(tensor);
  }
  EXPECT_EQ(run.output_shape(), file.shape(test.at("output"))) << name;
  run.forward();
  expect_near(run.output, file.floats(test.at("output")), 1e-5, name + ": output");
  if (!training) {
    return;
  }
  run.backward(file.floats(test.at("output_gradient")));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (const Json& tensor = test.at("input_gradients")[i]; !tensor.is_null()) {
      expect_near(run.input_gradients[i], file.floats(tensor), 2e-5, name + ": input gradient");
    }
  }
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const ParameterSpec& spec = run.parameter_specs()[i];
    if (spec.kind == ParameterKind::optimized) {
      expect_near(run.parameter_gradients[i], file.floats(test.at("parameter_gradients").at(spec.name)), 2e-5,
                  name + ": gradient of " + spec.name);
      continue;
    }
    std::vector<float> updated = run.parameters[i];
    for (std::size_t k = 0; k < updated.size(); ++k) {
      updated[k] += spec.average_rate * (run.parameter_gradients[i][k] - updated[k]);
    }
    expect_near(updated, file.floats(test.at("updated_parameters").at(spec.name)), 1e-5, name + ": " + spec.name);
  }
}

TEST_P(PyTorchLayer, ComputesTheSame) { compare_with_case(GetParam(), false); }
TEST_P(PyTorchLayer, ComputesTheSameInBlockedLayouts) { compare_with_case(GetParam(), true); }

INSTANTIATE_TEST_SUITE_P(Reference, PyTorchLayer, testing::ValuesIn(reference().list("cases").get<std::vector<Json>>()),
                         title);

class PyTorchLoss : public testing::TestWithParam<Json> {};

TEST_P(PyTorchLoss, ComputesTheSame) {
  const Reference& file = reference();
  const Json& test = GetParam();
  const LossPtr loss = make_loss(test.at("type").get<std::string>());
  const std::vector<float> prediction = file.floats(test.at("prediction"));
  const Shape shape = file.shape(test.at("prediction"));
  std::vector<std::int32_t> classes;
  std::vector<float> values;
  if (test.contains("classes")) {
    classes = file.integers(test.at("classes"));
  } else {
    values = file.floats(test.at("targets"));
  }
  std::vector<float> gradient(prediction.size());
  const LossSums sums = loss->evaluate(prediction.data(), shape[0], shape[1], {classes, values}, gradient.data());
  EXPECT_NEAR(sums.loss, test.at("loss").get<double>(), 1e-5 * std::abs(test.at("loss").get<double>()));
  expect_near(gradient, file.floats(test.at("gradient")), 1e-6, "gradient");
}

INSTANTIATE_TEST_SUITE_P(Reference, PyTorchLoss, testing::ValuesIn(reference().list("losses").get<std::vector<Json>>()),
                         title);

class PyTorchOptimizer : public testing::TestWithParam<Json> {};

TEST_P(PyTorchOptimizer, GivesTheSameValuesAfterEachUpdate) {
  const Reference& file = reference();
  const Json& test = GetParam();
  RuleOptions options;
  for (const auto& [key, value] : test.at("rule").items()) {
    if (key == "name") {
      options.name = value;
    } else if (key == "momentum") {
      options.momentum = value;
    } else if (key == "epsilon") {
      options.epsilon = value;
    } else if (key == "rho") {
      options.rho = value;
    } else if (key == "beta1") {
      options.beta1 = value;
    } else if (key == "beta2") {
      options.beta2 = value;
    } else {
      FAIL() << "a constant that this test does not know: " << key;
    }
  }
  const auto rule = make_rule(options);
  std::vector<float> values = file.floats(test.at("initial"));
  const std::vector<float> gradients = file.floats(test.at("gradients"));
  const std::vector<float> expected = file.floats(test.at("values"));
  const std::size_t count = values.size();
  std::vector<std::vector<float>> slots;
  std::vector<float*> places;
  for (int slot = 0; slot < rule->slots(); ++slot) {
    slots.emplace_back(count, rule->initial_slot_value(slot));
    places.push_back(slots.back().data());
  }
  for (std::size_t step = 0; step * count < gradients.size(); ++step) {
    rule->apply({test.at("rate"), test.at("weight_decay"), step + 1}, values,
                std::span(gradients).subspan(step * count, count), places);
    expect_near(values,
                {expected.begin() + static_cast<std::ptrdiff_t>(step * count),
                 expected.begin() + static_cast<std::ptrdiff_t>((step + 1) * count)},
                2e-6, "after update " + std::to_string(step + 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, PyTorchOptimizer,
                         testing::ValuesIn(reference().list("optimizers").get<std::vector<Json>>()), title);

class PyTorchModel : public testing::TestWithParam<Json> {};

TEST_P(PyTorchModel, TrainsTheSameWay) {
  const Reference& file = reference();
  const Json& test = GetParam();
  const Shape input = file.shape(test.at("input"));  // steps, batch, sample
  Graph graph(test.at("name"));
  std::map<std::string, NodeId> nodes;
  nodes["input"] = graph.add_input(input.sample().sample());
  for (const Json& layer : test.at("layers")) {
    const std::string name = layer.at("name");
    std::vector<NodeId> sources;
    for (const std::string source : layer.at("inputs")) {
      sources.push_back(nodes.at(source));
    }
    nodes[name] = graph.add(name, layer_from(layer, name), sources);
  }
  graph.finish(make_loss("softmax_cross_entropy"));

  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table, {});
  table.initialize(1, replica.values());
  for (const ParameterEntry& entry : table.entries()) {
    const std::vector<float> values = file.floats(test.at("parameters").at(entry.name));
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), entry.range.size());
    std::ranges::copy(values, replica.values().begin() + entry.range.begin);
  }
  const auto rule = make_rule({.name = "momentum", .momentum = test.at("momentum").get<double>()});
  ParameterShard shard(table, table.everything(), *rule, replica.values());

  const std::vector<float> samples = file.floats(test.at("input"));
  const std::vector<std::int32_t> classes = file.integers(test.at("classes"));
  const auto rows = static_cast<std::size_t>(input[1]);
  const auto steps = static_cast<std::size_t>(input[0]);
  const std::size_t width = samples.size() / steps / rows;
  for (std::size_t step = 0; step < steps; ++step) {
    Batch batch;
    for (std::size_t r = step * rows; r < (step + 1) * rows; ++r) {
      batch.ids.push_back(r);
      batch.classes.push_back(classes[r]);
      batch.dense.insert(batch.dense.end(), samples.begin() + static_cast<std::ptrdiff_t>(r * width),
                         samples.begin() + static_cast<std::ptrdiff_t>((r + 1) * width));
    }
    const LossSums sums = replica.compute_gradient(batch);
    EXPECT_NEAR(sums.loss / static_cast<double>(rows), test.at("losses")[step].get<double>(), 2e-5) << step;
    const UpdateReport report = shard.apply({0, step}, replica.gradients(), 1.0F / static_cast<float>(rows),
                                            {.rate = test.at("rate")}, shard.version());
    ASSERT_EQ(report.result, ApplyResult::applied);
  }
  for (const auto& [name, expected] : test.at("sums").items()) {
    const ParameterEntry& entry = table.at(name);
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = entry.range.begin; i < entry.range.end; ++i) {
      const double value = replica.values()[static_cast<std::size_t>(i)];
      sum += value;
      squares += value * value;
    }
    EXPECT_NEAR(sum, expected[0].get<double>(), 2e-4) << name;
    EXPECT_NEAR(squares, expected[1].get<double>(), 1e-4 * std::max(1.0, squares)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, PyTorchModel,
                         testing::ValuesIn(reference().list("models").get<std::vector<Json>>()), title);

}  // namespace
}  // namespace distbelief
