#pragma once

#include "graph/layer.h"

namespace distbelief {

/// For layers whose work is shared out by rows of the image: gives each process the rows that it needs, of which it has
/// most and its neighbours the others. Rows that lie outside of the image are made up. Backward adds what came of a row
/// in all places to the gradient of who has it.
struct HaloExchangeOptions {
  bool whole = false;                      ///< each has all rows, and no neighbour is asked
  std::vector<std::int64_t> bounds = {};   ///< otherwise the i-th has rows [bounds[i], bounds[i + 1])
  std::int64_t rows = 0;                   ///< of the image
  std::vector<RowsNeeded> needed = {};     ///< by each
  int position = 0;                        ///< of this process
};

class HaloExchange : public Layer {
 public:
  explicit HaloExchange(HaloExchangeOptions options) : options_(std::move(options)) {}
  std::string_view type() const override { return "halo"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs /*inputs*/) const override { return 0; }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
  const HaloExchangeOptions& options() const { return options_; }

 private:
  HaloExchangeOptions options_;
};

}  // namespace distbelief
