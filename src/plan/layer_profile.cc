#include "plan/layer_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <typeinfo>

namespace distbelief {
namespace {

constexpr std::string_view kHeading = "distbelief layer times 2";

/// The next part of the text up to `end`, which is taken away with it; nothing when it does not end so.
std::optional<std::string_view> take(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at + 1);
  return part;
}

std::optional<double> seconds_in(std::optional<std::string_view> text) {
  double seconds = 0;
  if (!text) {
    return std::nullopt;
  }
  const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  const bool sound =
      error == std::errc() && stop == text->data() + text->size() && std::isfinite(seconds) && seconds >= 0;
  return sound ? std::optional(seconds) : std::nullopt;
}

/// In a line of text, and between tabs.
std::string in_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

std::string time_text(const LayerTime& time) { return fmt::format("{:.4g}\t{:.4g}\t", time.forward, time.backward); }

/// What will be read from text(), so that this plan and the next see the same.
std::optional<LayerTime> as_written(const std::optional<LayerTime>& time) {
  if (!time) {
    return std::nullopt;
  }
  const std::string text = time_text(*time);
  std::string_view rest = text;
  const double forward = *seconds_in(take(rest, '\t'));
  return LayerTime{forward, *seconds_in(take(rest, '\t'))};
}

}  // namespace

LayerProfile::LayerProfile(std::string machine, std::string setting, Measure measure)
    : machine_(in_one_line(std::move(machine))),
      setting_(in_one_line(std::move(setting))),
      measure_(std::move(measure)) {}

std::string LayerProfile::key_of(const Layer& layer, ValueSpecs inputs, Backward backward) const {
  // Options of a layer that change its time change its class, a shape or the number of operations.
  std::string key = fmt::format("{} {} {}", layer.type(), typeid(layer).name(), setting_);
  for (const ValueSpec& spec : inputs) {
    key += " " + spec.shape.text();
  }
  key += " to " + layer.output(inputs).shape.text();
  for (const ParameterSpec& spec : layer.parameters(inputs)) {
    key += " " + spec.name + " " + spec.shape.text();
  }
  return key + fmt::format(" flops {} backward {}{}", layer.flops(inputs), backward.parameters ? "w" : "",
                           backward.inputs ? "x" : "");
}

std::optional<LayerTime> LayerProfile::time_of(const Layer& layer, ValueSpecs inputs, Backward backward) {
  const auto [found, fresh] = times_.try_emplace(key_of(layer, inputs, backward));
  if (fresh) {
    found->second = as_written(measure_(layer, inputs, backward));
    ++(found->second ? measured_ : not_measured_);
  }
  return found->second;
}

bool LayerProfile::read(std::string_view text) {
  std::map<std::string, std::optional<LayerTime>> read;
  if (take(text, '\n') != kHeading || take(text, '\n') != machine_) {
    return false;
  }
  while (!text.empty()) {
    std::optional<std::string_view> line = take(text, '\n');
    if (!line) {
      return false;
    }
    const std::optional<double> forward = seconds_in(take(*line, '\t'));
    const std::optional<double> backward = seconds_in(take(*line, '\t'));
    if (!forward || !backward || line->empty()) {
      return false;
    }
    read[std::string(*line)] = LayerTime{*forward, *backward};
  }
  times_.merge(read);
  return true;
}

std::string LayerProfile::text() const {
  std::string text = fmt::format("{}\n{}\n", kHeading, machine_);
  for (const auto& [key, time] : times_) {
    if (time) {
      text += time_text(*time) + key + "\n";
    }
  }
  return text;
}

}  // namespace distbelief
