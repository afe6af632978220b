#include "graph/exchanges/halo_exchange.h"

#include <algorithm>

#include "base/parallel.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

/// Rows [begin, end) of the image, none when end <= begin.
struct Rows {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return std::max<std::int64_t>(0, end - begin); }
};

Rows common(const Rows& a, const Rows& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

class HaloKernel : public Kernel {
 public:
  HaloKernel(const Shape& input, const Shape& output, const HaloExchangeOptions& options)
      : Kernel(plain_value(output), {.backward_reads_inputs = false}),
        options_(options),
        planes_(input[0] * input[1]),
        width_(input[3]),
        have_(options.whole ? Rows{0, options.rows} : held_by(self())),
        need_({options.needed[self()].begin, options.needed[self()].end}) {
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < count(); ++i) {
      rows += i == self() || options.whole ? 0 : to(i).count() + from(i).count();
    }
    traits_.scratch_bytes = static_cast<std::size_t>(rows * planes_ * width_) * sizeof(float);
  }

  void forward(const StepContext& step) override {
    const auto* input = static_cast<const float*>(memory_.inputs[0]);
    const RowsNeeded& needed = options_.needed[self()];
    if (needed.begin < 0 || needed.end > options_.rows) {
      std::fill_n(memory_.output, planes_ * need_.count() * width_, needed.fill);
    }
    copy(input, have_, memory_.output, need_, common(have_, need_));
    if (!options_.whole) {
      trade(
          step, [&](std::size_t i) { return to(i); }, [&](std::size_t i) { return from(i); }, input, have_,
          [&](const Rows& rows, const float* came) { copy(came, rows, memory_.output, need_, rows); });
    }
  }

  void backward(const StepContext& step) override {
    float* gradient = memory_.input_gradients[0];
    std::fill_n(gradient, planes_ * have_.count() * width_, 0.0F);
    copy(memory_.output_gradient, need_, gradient, have_, common(have_, need_));
    if (options_.whole) {
      step.exchange->sum({gradient, static_cast<std::size_t>(planes_ * have_.count() * width_)});
      return;
    }
    trade(
        step, [&](std::size_t i) { return from(i); }, [&](std::size_t i) { return to(i); }, memory_.output_gradient,
        need_, [&](const Rows& rows, const float* came) { add_rows(came, rows, gradient, have_); });
  }

 private:
  std::size_t self() const { return static_cast<std::size_t>(options_.position); }
  std::size_t count() const { return options_.needed.size(); }
  Rows held_by(std::size_t i) const { return {options_.bounds[i], options_.bounds[i + 1]}; }
  /// What the i-th needs of ours, and we of its.
  Rows to(std::size_t i) const { return common(have_, {options_.needed[i].begin, options_.needed[i].end}); }
  Rows from(std::size_t i) const { return common(held_by(i), need_); }

  /// Copies `rows` of all planes between two memories of other rows.
  void copy(const float* from, const Rows& from_rows, float* to, const Rows& to_rows, const Rows& rows) const {
    if (rows.count() == 0) {
      return;
    }
    parallel_for(planes_, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        std::copy_n(from + (plane * from_rows.count() + rows.begin - from_rows.begin) * width_, rows.count() * width_,
                    to + (plane * to_rows.count() + rows.begin - to_rows.begin) * width_);
      }
    });
  }
  void add_rows(const float* came, const Rows& rows, float* to, const Rows& to_rows) const {
    for (std::int64_t plane = 0; plane < planes_; ++plane) {
      float* const place = to + (plane * to_rows.count() + rows.begin - to_rows.begin) * width_;
      add(place, came + plane * rows.count() * width_, place, rows.count() * width_);
    }
  }

  /// Gives each other process its rows of `source`, and calls use(rows, floats) with what came from each.
  template <typename Given, typename Taken, typename Use>
  void trade(const StepContext& step, const Given& given, const Taken& taken, const float* source,
             const Rows& source_rows, const Use& use) {
    auto* room = reinterpret_cast<float*>(memory_.scratch);
    std::vector<std::span<const float>> out(count());
    std::vector<std::span<float>> in(count());
    const auto take_room = [&](const Rows& rows) {
      const std::span<float> piece(room, static_cast<std::size_t>(planes_ * rows.count() * width_));
      room += piece.size();
      return piece;
    };
    for (std::size_t i = 0; i < count(); ++i) {
      if (i != self()) {
        const std::span<float> piece = take_room(given(i));
        copy(source, source_rows, piece.data(), given(i), given(i));
        out[i] = piece;
        in[i] = take_room(taken(i));
      }
    }
    step.exchange->swap(out, in);
    for (std::size_t i = 0; i < count(); ++i) {
      if (i != self() && !in[i].empty()) {
        use(taken(i), in[i].data());
      }
    }
  }

  const HaloExchangeOptions options_;
  const std::int64_t planes_;
  const std::int64_t width_;
  const Rows have_;
  const Rows need_;
};

}  // namespace

ValueSpec HaloExchange::output(ValueSpecs inputs) const {
  std::vector<std::int64_t> dims = inputs[0].shape.dims();
  const RowsNeeded& needed = options_.needed.at(static_cast<std::size_t>(options_.position));
  dims.at(2) = needed.end - needed.begin;
  return {Shape(std::move(dims)), ValueKind::dense};
}

std::unique_ptr<Kernel> HaloExchange::compile(const Engine& /*engine*/, ValueLayouts inputs,
                                              Purpose /*purpose*/) const {
  const ValueSpec& input = inputs[0].spec;
  return std::make_unique<HaloKernel>(input.shape, output(std::span(&input, 1)).shape, options_);
}

}  // namespace distbelief
