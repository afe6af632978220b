#include "server/bench_ends.h"

#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/parallel.h"
#include "params/update_rule.h"
#include "server/pending_transfer.h"

namespace distbelief {
namespace {

constexpr int kAnsweringThreads = 2;  // as in a run
// Epochs of tags, all below those of the channels: MPI has room for few.
constexpr std::uint32_t kOrderEpoch = 1, kLinkEpoch = 2, kAnswerEpoch = 3, kAllEpoch = 4, kGroupEpoch = 5;
constexpr std::uint64_t kBumps = 1000;  // the lease of the server's own pushes

Clock::time_point patience() { return Clock::now() + std::chrono::minutes(5); }

void require(const Outcome& outcome) {
  if (!outcome.ok()) {
    throw Error(fmt::format("rank {} {}", outcome.peer.value, outcome.reason));
  }
}

void require(const ServerClient::PushReport& report) {
  require(report.outcome);
  if (report.status != ReplyHead::Status::done) {
    throw Error(fmt::format("a push ended with status {}", static_cast<int>(report.status)));
  }
}

template <typename T>
void send(Fabric& fabric, Rank to, Tag tag, const T& value) {
  Transfer transfer;
  fabric.send(transfer, to, tag, std::as_bytes(std::span(&value, 1)));
  require(fabric.wait(transfer, patience()));
}

template <typename T>
T receive(Fabric& fabric, Rank from, Tag tag) {
  T value = {};
  Transfer transfer;
  fabric.receive(transfer, from, tag, std::as_writable_bytes(std::span(&value, 1)));
  require(fabric.wait(transfer, patience()));
  return value;
}

/// Unlike that of any other rule and size, which is a power of two from 1 KB on; less than 64.
std::uint32_t view_of(const Order& order) {
  return static_cast<std::uint32_t>(std::size(kRules)) * static_cast<std::uint32_t>(std::bit_width(order.bytes) - 11) +
         static_cast<std::uint32_t>(order.rule);
}

bool is_link(Order::Kind kind) {
  return kind == Order::Kind::link_there || kind == Order::Kind::link_back || kind == Order::Kind::link_turns;
}

/// One end of plain messages between leader and server.
void exchange(Fabric& fabric, Rank peer, const Order& order, LinkMemory& memory, LinkTags& tags) {
  const bool sends = (order.kind == Order::Kind::link_back) == (fabric.rank() == kServer);
  const std::size_t open = order.kind == Order::Kind::link_turns ? 1 : 2;
  for (std::vector<std::byte>& one : memory) {
    one.resize(static_cast<std::size_t>(order.bytes));
  }
  Transfer transfers[2];
  for (std::uint64_t i = 0; i < order.times + open; ++i) {
    if (i >= open) {
      require(fabric.wait(transfers[i % open], patience()));
      if (open == 1) {
        const Tag answer = {kAnswerEpoch, tags.answers++};
        sends ? (void)receive<std::uint64_t>(fabric, peer, answer) : send(fabric, peer, answer, i);
      }
    }
    if (i < order.times) {
      const Tag tag = {kLinkEpoch, tags.messages++};
      sends ? fabric.send(transfers[i % open], peer, tag, memory[i % open])
            : fabric.receive(transfers[i % open], peer, tag, memory[i % open]);
    }
  }
}

UpdateOptions update() { return {.rate = 1e-6F}; }

}  // namespace

Parameters::Parameters(const Order& order)
    : table([&] {
        ParameterTable made;
        made.add("weight",
                 {.name = "weight", .shape = {static_cast<std::int64_t>(order.bytes / sizeof(float))}, .init = {}});
        if (order.rule == 0) {
          (void)made.freeze("*");
        }
        return made;
      }()),
      rule(make_rule({.name = kRules[order.rule == 0 ? 1 : order.rule]})),
      map(table, 1) {
  for (std::size_t i = 0; i < map.blocks().size(); ++i) {
    blocks.push_back(static_cast<int>(i));
  }
}

struct ServerEnd::Station {
  Station(Fabric& fabric, const Order& order)
      : parameters(order),
        zeros(static_cast<std::size_t>(parameters.table.size())),
        none(parameters.blocks.size()),
        server(parameters.table, parameters.map, parameters.blocks, *parameters.rule, zeros,
               {.update = [](std::uint64_t, int) { return update(); }}),
        ordered(server, {.heard = [this](const RequestHead& request, const ReplyHead&, std::string_view) {
                  if (request.kind == RequestHead::Kind::report) {
                    (void)server.push({.push = {kBumps, bumps++}, .scale = 1}, none, zeros);
                  }
                }}) {
    std::vector<ServerPort::Client> clients;
    for (int rank = 0; rank < fabric.size(); ++rank) {
      if (Rank{rank} != kServer) {
        clients.push_back({.rank = Rank{rank}});
      }
    }
    port.emplace(
        fabric, ordered, clients,
        ServerPort::Options{.view = view_of(order), .threads = kAnsweringThreads, .wake = [this] { link.wake(); }});
  }
  const Parameters parameters;
  const std::vector<float> zeros;
  const std::vector<std::uint64_t> none;
  std::uint64_t bumps = 0;  ///< reports make all blocks new, so that a fetch has something to bring
  LinkThread link;
  ParameterServer server;
  OrderedServer ordered;
  std::optional<ServerPort> port;
};

ServerEnd::ServerEnd(Fabric& fabric) : fabric_(fabric) {}
ServerEnd::~ServerEnd() = default;

ServerEnd::Station& ServerEnd::station(const Order& order) {
  std::unique_ptr<Station>& station = stations_[view_of(order)];
  if (station == nullptr) {
    station = std::make_unique<Station>(fabric_, order);
  }
  return *station;
}

void ServerEnd::serve(Station& station, Order& next) {
  PendingTransfer transfer;
  transfer.receive(fabric_, kLeader, {kOrderEpoch, orders_++}, std::as_writable_bytes(std::span(&next, 1)));
  std::atomic<bool> over = false;
  Outcome outcome;
  const auto advance = [&] {
    const bool moved = station.port->advance();
    if (!over && transfer.ended(fabric_, outcome)) {
      over = true;
      over.notify_one();
    }
    return moved;
  };
  station.link.start(fabric_, advance, [&] { return station.port->in_a_message(); });
  over.wait(false);
  station.link.stop();
  require(outcome);
}

double ServerEnd::apply_alone(const Order& order) {
  set_thread_count(1);  // as a thread that answers
  const Parameters parameters(order);
  std::vector<float> values(static_cast<std::size_t>(parameters.table.size()));
  const std::vector<float> gradient(values.size(), 1e-3F);
  const std::span<const float> part = gradient;
  ParameterShard shard(parameters.table, parameters.table.everything(), *parameters.rule, values);
  (void)shard.apply({1, 0}, {&part, 1}, 0.5F, update(), {});
  const auto start = Clock::now();
  for (std::uint64_t i = 1; i <= order.times; ++i) {
    (void)shard.apply({1, i}, {&part, 1}, 0.5F, update(), {});
  }
  return seconds_since(start);
}

void ServerEnd::run() {
  Order order = receive<Order>(fabric_, kLeader, {kOrderEpoch, orders_++});
  while (order.kind != Order::Kind::quit) {
    if (order.kind == Order::Kind::push || order.kind == Order::Kind::fetch) {
      Order next;
      serve(station(order), next);
      order = next;
      continue;
    }
    if (is_link(order.kind)) {
      exchange(fabric_, kLeader, order, link_memory_, link_tags_);
    }
    const double seconds = order.kind == Order::Kind::rule ? apply_alone(order) : 0;
    send(fabric_, kLeader, {kAnswerEpoch, link_tags_.answers++}, seconds);
    order = receive<Order>(fabric_, kLeader, {kOrderEpoch, orders_++});
  }
}

struct ClientEnd::Station {
  Station(Fabric& fabric, const Order& order)
      : parameters(order),
        lease(static_cast<std::uint64_t>(fabric.rank().value) + 1),
        gradient(static_cast<std::size_t>(parameters.table.size()), 1e-3F),
        values(gradient.size()),
        client(fabric, parameters.map, {{.rank = kServer, .blocks = parameters.blocks}},
               {.view = view_of(order), .incarnation = lease, .wake = [this] { link.wake(); }}) {}
  const Parameters parameters;
  const std::uint64_t lease;
  std::uint64_t pushes = 0;
  const std::vector<float> gradient;
  std::vector<float> values;
  LinkThread link;
  ServerClient client;

  void start(const Fabric& fabric) {
    link.start(
        fabric, [this] { return client.advance(); }, [this] { return client.in_a_message(); });
  }
};

ClientEnd::ClientEnd(Fabric& fabric)
    : fabric_(fabric),
      all_(
          fabric,
          [&] {
            std::vector<Rank> clients;
            for (int rank = 0; rank < fabric.size(); ++rank) {
              if (Rank{rank} != kServer) {
                clients.push_back(Rank{rank});
              }
            }
            return clients;
          }(),
          kAllEpoch) {}
ClientEnd::~ClientEnd() = default;

ClientEnd::Station& ClientEnd::station(const Order& order) {
  std::unique_ptr<Station>& station = stations_[view_of(order)];
  if (station == nullptr) {
    station = std::make_unique<Station>(fabric_, order);
  }
  return *station;
}

void ClientEnd::tell(const Order& order) {
  send(fabric_, kServer, {kOrderEpoch, orders_++}, order);
  Order copy = order;
  require(all_.broadcast(std::as_writable_bytes(std::span(&copy, 1)), 0, patience()));
}

double ClientEnd::measure(const Order& order) {
  tell(order);
  return obey(order);
}

void ClientEnd::quit() { tell({}); }

void ClientEnd::follow() {
  while (true) {
    Order order;
    require(all_.broadcast(std::as_writable_bytes(std::span(&order, 1)), 0, Clock::now() + std::chrono::hours(2)));
    if (order.kind == Order::Kind::quit) {
      return;
    }
    if (order.kind == Order::Kind::push && static_cast<std::uint64_t>(all_.position()) < order.clients) {
      (void)push(order);
    }
  }
}

double ClientEnd::obey(const Order& order) {
  if (order.kind == Order::Kind::push) {
    return push(order);
  }
  return order.kind == Order::Kind::fetch ? fetch(order) : use_link(order);
}

double ClientEnd::use_link(const Order& order) {
  const auto start = Clock::now();
  if (is_link(order.kind)) {
    exchange(fabric_, kServer, order, link_memory_, link_tags_);
  }
  const auto seconds = receive<double>(fabric_, kServer, {kAnswerEpoch, link_tags_.answers++});
  return is_link(order.kind) ? seconds_since(start) : seconds;
}

double ClientEnd::push(const Order& order) {
  std::unique_ptr<Group>& group = pushing_[order.clients];
  if (group == nullptr) {
    const auto members = std::span(all_.members()).first(static_cast<std::size_t>(order.clients));
    group = std::make_unique<Group>(fabric_, std::vector<Rank>(members.begin(), members.end()),
                                    kGroupEpoch + static_cast<std::uint32_t>(order.clients));
  }
  Station& to = station(order);
  require(group->barrier(patience()));
  const auto start = Clock::now();
  to.start(fabric_);
  for (std::uint64_t i = 0; i < order.times; ++i) {
    const std::span<const float> part = to.gradient;
    to.client.add({&part, 1});
    require(to.client.push({.id = {to.lease, to.pushes++}, .scale = 0.5F}, patience()));
  }
  require(to.client.wait_pushed(patience()));
  to.link.stop();
  require(group->barrier(patience()));
  return seconds_since(start);
}

double ClientEnd::fetch(const Order& order) {
  Station& from = station(order);
  from.start(fabric_);
  double seconds = 0;
  for (std::uint64_t i = 0; i < order.times; ++i) {
    require(from.client.report({}, "", patience()));
    const auto start = Clock::now();
    from.client.begin_fetch();
    require(from.client.wait_fetched(patience()));
    from.client.take(from.values);
    seconds += seconds_since(start);
  }
  from.link.stop();
  return seconds;
}

}  // namespace distbelief
