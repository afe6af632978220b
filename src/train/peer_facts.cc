#include "train/peer_facts.h"

#include "base/json.h"

namespace distbelief {

std::string PeerFacts::text() const { return json_text(Json({{"first", first}, {"late", late}, {"cores", cores}})); }

PeerFacts PeerFacts::parse(const std::string& text) {
  const Json json = try_parse_json(text);
  const auto fact = [&](const char* name) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  return {.first = fact("first"), .late = fact("late"), .cores = fact("cores")};
}

}  // namespace distbelief
