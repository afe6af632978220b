#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/group.h"
#include "params/parameter_table.h"
#include "server/link_thread.h"
#include "server/parameter_server.h"
#include "server/placement.h"
#include "server/server_client.h"
#include "server/server_port.h"
#include "transport/fabric.h"

// What bench_server's processes do: rank 0 is the first client and leads, rank 1 is the server, the others are clients.

namespace distbelief {

constexpr Rank kLeader{0}, kServer{1};

/// What the leader tells all others to do next. The same in every process, so it travels as it is.
struct Order {
  enum class Kind : std::uint64_t {
    quit,
    link_there,  ///< the link alone: messages from the leader to the server, two open at a time
    link_back,   ///< and the other way
    link_turns,  ///< to the server, each acknowledged before the next begins
    rule,        ///< ParameterShard::apply() alone, in the server's process
    push,
    fetch,
  };
  Kind kind = Kind::quit;
  std::uint64_t rule = 0;     ///< place in kRules
  std::uint64_t bytes = 0;    ///< of all parameters
  std::uint64_t clients = 1;  ///< that push
  std::uint64_t times = 1;    ///< each
  friend auto operator<=>(const Order&, const Order&) = default;
};

/// Nothing is computed under "none": its parameters are frozen. All else, from the link to versions, is as ever.
constexpr const char* kRules[] = {"none", "sgd", "adagrad"};

/// A rule on so many bytes of parameters, as both ends know it.
struct Parameters {
  Parameters(const Order& order);
  ParameterTable table;
  std::unique_ptr<UpdateRule> rule;
  BlockMap map;
  std::vector<int> blocks;  ///< all of them
};

/// Of the messages of the link alone; kept, as new memory is slow at first.
using LinkMemory = std::array<std::vector<std::byte>, 2>;
/// Counted alike at both ends.
struct LinkTags {
  std::uint32_t messages = 0;
  std::uint32_t answers = 0;
};

/// The server's process: does what is ordered until the leader says quit.
class ServerEnd {
 public:
  explicit ServerEnd(Fabric& fabric);
  ~ServerEnd();
  void run();

 private:
  struct Station;
  Station& station(const Order& order);
  void serve(Station& station, Order& next);
  double apply_alone(const Order& order);

  Fabric& fabric_;
  LinkMemory link_memory_;
  LinkTags link_tags_;
  std::uint32_t orders_ = 0;
  std::map<std::uint32_t, std::unique_ptr<Station>> stations_;
};

/// A client's process. The leader calls measure(), the others follow().
class ClientEnd {
 public:
  explicit ClientEnd(Fabric& fabric);
  ~ClientEnd();
  /// Seconds that it took. The others, and the server, hear of it here.
  double measure(const Order& order);
  void quit();
  void follow();

 private:
  struct Station;
  Station& station(const Order& order);
  double obey(const Order& order);
  double push(const Order& order);
  double fetch(const Order& order);
  double use_link(const Order& order);
  void tell(const Order& order);

  Fabric& fabric_;
  LinkMemory link_memory_;
  LinkTags link_tags_;
  Group all_;
  std::map<std::uint64_t, std::unique_ptr<Group>> pushing_;  ///< by their number
  std::uint32_t orders_ = 0;
  std::map<std::uint32_t, std::unique_ptr<Station>> stations_;
};

}  // namespace distbelief
