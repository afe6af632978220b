#include "train/carried_state.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"

namespace distbelief {
namespace {

constexpr const char* kReplicaValues = "values";

}  // namespace

class CarriedState::Taker : public StateVisitor {
 public:
  explicit Taker(CarriedState& state) : state_(state) {}
  void floats(std::string_view name, std::span<float> values) override {
    Array& array = state_.arrays_.emplace_back();
    array.name = name;
    array.count = values.size();
    array.floats = Buffer(std::max<std::size_t>(values.size_bytes(), 1));
    std::ranges::copy(values, array.values().begin());
  }
  void number(std::string_view name, std::uint64_t& value) override { state_.numbers_[std::string(name)] = {value}; }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override {
    state_.numbers_[std::string(name)] = values;
  }

 private:
  CarriedState& state_;
};

class CarriedState::Giver : public StateVisitor {
 public:
  explicit Giver(CarriedState& state) : state_(state) {}
  void floats(std::string_view name, std::span<float> values) override {
    const auto found = std::ranges::find(state_.arrays_, name, &Array::name);
    check(found != state_.arrays_.end() && found->count == values.size(), "members of a group have the same state");
    std::ranges::copy(found->values(), values.begin());
  }
  void number(std::string_view name, std::uint64_t& value) override { value = find(name).at(0); }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override { values = find(name); }

 private:
  const std::vector<std::uint64_t>& find(std::string_view name) const {
    const auto found = state_.numbers_.find(std::string(name));
    check(found != state_.numbers_.end(), "members of a group have the same state");
    return found->second;
  }
  CarriedState& state_;
};

CarriedState CarriedState::of(Replica& replica, Strategy& strategy) {
  CarriedState state;
  Taker taker(state);
  taker.floats(kReplicaValues, replica.values());
  strategy.visit_state(taker);
  return state;
}

void CarriedState::give(Replica& replica, Strategy& strategy) {
  Giver giver(*this);
  giver.floats(kReplicaValues, replica.values());
  strategy.visit_state(giver);
}

std::string CarriedState::directory() const {
  Json arrays = Json::array();
  for (const Array& array : arrays_) {
    arrays.push_back({array.name, array.count});
  }
  return json_text(Json{{"arrays", arrays}, {"numbers", numbers_}});
}

void CarriedState::make_room(const std::string& directory) {
  const Json root = parse_json(directory);
  numbers_ = root.at("numbers").get<std::map<std::string, std::vector<std::uint64_t>>>();
  arrays_.clear();
  for (const Json& entry : root.at("arrays")) {
    Array& array = arrays_.emplace_back();
    array.name = entry.at(0);
    array.count = entry.at(1);
    array.floats = Buffer(std::max<std::size_t>(array.count * sizeof(float), 1));
  }
}

Outcome CarriedState::share(Group& group, int root, Clock::time_point deadline) {
  std::string text = group.position() == root ? directory() : "";
  Outcome outcome = share_text(group, root, text, deadline);
  if (outcome.ok() && group.position() != root) {
    make_room(text);
  }
  for (std::size_t i = 0; outcome.ok() && i < arrays_.size(); ++i) {
    outcome = group.broadcast(std::as_writable_bytes(arrays_[i].values()), root, deadline);
  }
  return outcome;
}

Outcome share_text(Group& group, int root, std::string& text, Clock::time_point deadline) {
  std::uint64_t size = text.size();
  Outcome outcome = group.broadcast(std::as_writable_bytes(std::span(&size, 1)), root, deadline);
  if (outcome.ok()) {
    text.resize(size);
    outcome = group.broadcast(std::as_writable_bytes(std::span(text)), root, deadline);
  }
  return outcome;
}

}  // namespace distbelief
