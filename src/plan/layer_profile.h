#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "plan/layer_times.h"

namespace distbelief {

/// Times of layers that were measured before, and a way to measure others. As text it is one line each, so that the
/// next plan on the same machine measures nothing twice. One thread.
class LayerProfile : public LayerTimes {
 public:
  using Measure = std::function<std::optional<LayerTime>(const Layer& layer, ValueSpecs inputs, Backward backward)>;

  using MeasurePart = std::function<std::optional<LayerTime>(const NetworkPart& part, std::int64_t rows)>;

  /// `machine`: on what it is measured, such as the processor's name; times of another are not believed. `setting`:
  /// with how many threads, beside what; each has times of its own.
  LayerProfile(std::string machine, std::string setting, Measure measure, MeasurePart measure_part = {});

  /// Of what would take long fewer rows are measured, and so many times that is the time of all.
  std::optional<LayerTime> time_of(const Layer& layer, ValueSpecs inputs, Backward backward) override;

  std::optional<LayerTime> time_of_part(const NetworkPart& part, std::int64_t rows) override;

  /// Takes over what text() has written and is not known here. False when the text is something else: then nothing is
  /// taken over.
  [[nodiscard]] bool read(std::string_view text);
  /// All that is known, of other settings too.
  std::string text() const;

  int known() const { return static_cast<int>(times_.size()); }
  int measured() const { return measured_; }          ///< now, and not before
  int not_measured() const { return not_measured_; }  ///< layers that cannot be

 private:
  std::string key_of(const Layer& layer, ValueSpecs inputs, Backward backward) const;
  std::optional<LayerTime> known_or(const std::string& key, const std::function<std::optional<LayerTime>()>& measure);

  const std::string machine_;
  const std::string setting_;
  const Measure measure_;
  const MeasurePart measure_part_;                         ///< may be empty
  std::map<std::string, std::optional<LayerTime>> times_;  ///< nothing: cannot be measured
  int measured_ = 0;
  int not_measured_ = 0;
};

}  // namespace distbelief
