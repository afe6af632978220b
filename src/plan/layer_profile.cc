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

/// How many rows of a batch are enough to tell how long all of them take: a power of two of them that takes a moment,
/// by a guess of the layer's operations and bytes, so that batches of different size share a measurement. Images take
/// as long one by one as together; rows of a product do only when there are many.
std::int64_t rows_to_measure(const Layer& layer, ValueSpecs inputs) {
  constexpr double kOperationsASecond = 5e10;
  constexpr double kFloatsASecond = 2e9;
  const double moment = inputs[0].shape.rank() == 4 ? 0.005 : 0.1;
  const std::int64_t rows = inputs[0].shape[0];
  std::int64_t floats = layer.output(inputs).shape.elements();
  for (const ValueSpec& spec : inputs) {
    floats += spec.shape.elements();
  }
  const double guess = std::max(static_cast<double>(layer.flops(inputs)) / kOperationsASecond,
                                static_cast<double>(floats) / kFloatsASecond);
  std::int64_t enough = 1;
  while (enough < rows && guess * static_cast<double>(enough) < moment * static_cast<double>(rows)) {
    enough *= 2;
  }
  return std::min(enough, rows);
}

}  // namespace

LayerProfile::LayerProfile(std::string machine, std::string setting, Measure measure, MeasurePart measure_part)
    : machine_(in_one_line(std::move(machine))),
      setting_(in_one_line(std::move(setting))),
      measure_(std::move(measure)),
      measure_part_(std::move(measure_part)) {}

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
  const std::int64_t rows = inputs[0].shape[0];
  const std::int64_t measured_rows = rows_to_measure(layer, inputs);
  std::vector<ValueSpec> fewer;
  for (const ValueSpec& spec : inputs) {
    fewer.push_back({spec.shape.with_batch(measured_rows), spec.kind});
  }
  const std::optional<LayerTime> found =
      known_or(key_of(layer, fewer, backward), [&] { return measure_(layer, fewer, backward); });
  if (!found) {
    return std::nullopt;
  }
  const double times = static_cast<double>(rows) / static_cast<double>(measured_rows);
  return LayerTime{times * found->forward, times * found->backward};
}

std::optional<LayerTime> LayerProfile::time_of_part(const NetworkPart& part, std::int64_t rows) {
  if (!measure_part_) {
    return std::nullopt;
  }
  // What its nodes look like, as a digest: a line for each of them would be long.
  std::uint64_t digest = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](std::string_view text) {
    for (const char c : text) {
      digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  };
  const std::vector<Backward> backward = backward_of(part.graph, part.table);
  for (NodeId id = 1; id <= part.graph.output(); ++id) {
    const std::vector<ValueSpec> inputs = part.graph.input_specs(id, rows);
    add(key_of(*part.graph.node(id).layer, inputs, backward[static_cast<std::size_t>(id)]));
    for (const NodeId input : part.graph.node(id).inputs) {
      add(fmt::format(" from {}", input));
    }
  }
  const std::string key =
      fmt::format("part {} of {} nodes {:016x} {} rows", setting_, part.graph.nodes().size(), digest, rows);
  return known_or(key, [&] { return measure_part_(part, rows); });
}

std::optional<LayerTime> LayerProfile::known_or(const std::string& key,
                                                const std::function<std::optional<LayerTime>()>& measure) {
  const auto [found, fresh] = times_.try_emplace(key);
  if (fresh) {
    found->second = as_written(measure());
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
