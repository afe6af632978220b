#include "base/error.h"
#include "graph/layers/factorization.h"
#include "graph/losses/loss_factory.h"
#include "models/families/families.h"

namespace distbelief {
namespace {

Graph build_linear(const ModelOptions& options, const SampleSpec& data, std::string_view loss) {
  expect_classes(options, data);
  expect_numbers(options, data);
  Network network(options.model(), data);
  network.flatten();
  network.add("output", make_output(data.classes));
  return std::move(network).finish(make_loss(loss));
}

Graph build_logistic(const ModelOptions& options, const SampleSpec& data) {
  return build_linear(options, data, "softmax_cross_entropy");
}

Graph build_svm(const ModelOptions& options, const SampleSpec& data) { return build_linear(options, data, "hinge"); }

/// One score: the odds of class 1, or a number to predict.
Graph build_factorization(const ModelOptions& options, const SampleSpec& data) {
  expect_numbers(options, data);
  if (data.classes != 2 && (data.classes != 0 || data.targets != 1)) {
    throw InputError(
        fmt::format("model factorization needs data with 2 classes or 1 target; this data has {}", describe(data)));
  }
  Network network(options.model(), data);
  network.flatten();
  network.add("output", std::make_shared<FactorizationMachine>(options.integer("factors")));
  return std::move(network).finish(make_loss(data.classes == 2 ? "sigmoid_cross_entropy" : "mean_squared_error"));
}

}  // namespace

std::vector<ModelFamily> linear_family() {
  const SampleSpec rows = {.input = {123}, .sparse = true, .classes = 2};
  return {{{.name = "logistic",
            .description = "logistic regression, for sparse or dense rows",
            .default_data = rows,
            .parameters = 248,
            .options = {}},
           build_logistic},
          {{.name = "svm",
            .description = "linear support vector machine (hinge loss), for sparse or dense rows",
            .default_data = rows,
            .parameters = 248,
            .options = {}},
           build_svm},
          {{.name = "factorization",
            .description = "factorization machine, for sparse or dense rows of two classes",
            .default_data = rows,
            .parameters = 1108,
            .options = {{"factors", "8", "length of each column's vector"}}},
           build_factorization}};
}

}  // namespace distbelief
