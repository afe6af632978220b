#include "graph/losses/loss_factory.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/nearest_name.h"
#include "graph/losses/hinge.h"
#include "graph/losses/mean_squared_error.h"
#include "graph/losses/sigmoid_cross_entropy.h"
#include "graph/losses/softmax_cross_entropy.h"

namespace distbelief {

std::vector<std::string_view> loss_names() {
  return {"softmax_cross_entropy", "sigmoid_cross_entropy", "binary_cross_entropy", "hinge", "mean_squared_error"};
}

LossPtr make_loss(std::string_view name) {
  if (name == "softmax_cross_entropy") {
    return std::make_shared<SoftmaxCrossEntropy>();
  }
  if (name == "sigmoid_cross_entropy") {
    return std::make_shared<SigmoidCrossEntropy>(SigmoidCrossEntropy::Against::classes);
  }
  if (name == "binary_cross_entropy") {
    return std::make_shared<SigmoidCrossEntropy>(SigmoidCrossEntropy::Against::values);
  }
  if (name == "hinge") {
    return std::make_shared<Hinge>();
  }
  if (name == "mean_squared_error") {
    return std::make_shared<MeanSquaredError>();
  }
  const std::vector<std::string_view> names = loss_names();
  throw InputError(
      fmt::format("there is no loss '{}'; there are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

}  // namespace distbelief
