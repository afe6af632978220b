// bench_server: what a parameter server does with pushes and fetches, against what the link and the rule do alone.
//
//   build/release/bench_server                       over unix sockets; starts the other processes itself
//   mpirun -n 3 build/release/bench_server --transport mpi      -n 5, 17: updates/s of 4 and 16 clients
//   build/release/bench_server --rounds 3 --sizes 4096 --clients 1,4
//
// Every client and the server is a process of its own. All measurements of a size take turns, so that a machine that
// grows slower does so for all, and the fastest rounds are compared, as whatever disturbs only adds. "link" is plain
// messages of as many bytes one way, two open at a time; "turns" the same, each acknowledged before the next begins,
// which is what one client and its server do. Pushes "without applying" go to parameters that are frozen: all is done
// but the rule. A fetch counts until the values are in the worker's parameters; all blocks are new to it. "rule" is
// ParameterShard::apply() alone, on one thread of the server's process. Bandwidths count bytes of parameters only.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/bench_ends.h"
#include "socket_processes.h"
#include "transport/mpi/mpi_fabric.h"

namespace distbelief {
namespace {

using Kind = Order::Kind;
constexpr std::uint64_t kNone = 0, kSgd = 1, kAdagrad = 2;
constexpr std::uint64_t kBandwidthClients = 2;  // one pushes, or both
constexpr double kGoal = 0.8;
constexpr const char* kUpdatesHeading = "\n  push  clients   updates/s    GB/s\n";

struct Settings {
  std::string transport = "socket";
  std::vector<std::uint64_t> kilobytes = {256, 4096, 65536};
  std::vector<std::uint64_t> update_kilobytes = {1, 4096};
  std::vector<std::uint64_t> clients = {1, 4, 16};
  int rounds = 9;
  int milliseconds = 200;
  std::string out;
};

Clock::time_point patience() { return Clock::now() + std::chrono::minutes(5); }

/// Seconds of each order done once by each client: the fastest round.
class Measured {
 public:
  Measured(ClientEnd& leader, const Settings& settings, std::vector<Order> orders) {
    for (Order& order : orders) {  // how many fill the time; this also warms up
      while (leader.measure(order) * 1000 < settings.milliseconds) {
        order.times *= 2;
      }
    }
    for (int round = 0; round < settings.rounds; ++round) {
      for (const Order& order : orders) {
        const double seconds = leader.measure(order) / static_cast<double>(order.times);
        const auto [found, first] = seconds_.try_emplace(name(order), seconds);
        found->second = std::min(found->second, seconds);
      }
      std::ranges::reverse(orders);
    }
  }
  double seconds(const Order& order) const { return seconds_.at(name(order)); }
  /// GB/s of all clients together.
  double rate(const Order& order) const {
    return 1e-9 * static_cast<double>(order.bytes * order.clients) / seconds(order);
  }

 private:
  static Order name(Order order) {
    order.times = 1;
    return order;
  }
  std::map<Order, double> seconds_;
};

std::string size_text(std::uint64_t bytes) {
  return bytes >= 1U << 20U ? fmt::format("{} MB", bytes >> 20U) : fmt::format("{} KB", bytes >> 10U);
}

std::string verdict(double share) { return fmt::format("{:.2f} {}", share, share >= kGoal ? "met" : "missed"); }

/// Prints and returns rows of JSON.
std::string bandwidths(ClientEnd& leader, const Settings& settings) {
  std::string json;
  fmt::print("{:>6}  {:<8} {:>7}  {:>6}  {:>6}  {:>6}  {:>6}   {:<14} {:<14}\n", "size", "rule", "clients", "GB/s",
             "link", "turns", "rule", "of the slower", "with turns");
  for (const std::uint64_t kilobytes : settings.kilobytes) {
    const std::uint64_t bytes = kilobytes << 10U;
    const auto order = [&](Kind kind, std::uint64_t rule = kNone, std::uint64_t clients = 1) {
      return Order{.kind = kind, .rule = rule, .bytes = bytes, .clients = clients};
    };
    const std::vector<Order> served = {order(Kind::push),
                                       order(Kind::push, kNone, 2),
                                       order(Kind::fetch),
                                       order(Kind::push, kSgd),
                                       order(Kind::push, kSgd, 2),
                                       order(Kind::push, kAdagrad),
                                       order(Kind::push, kAdagrad, 2)};
    std::vector<Order> orders = {order(Kind::link_there), order(Kind::link_back), order(Kind::link_turns),
                                 order(Kind::rule, kSgd), order(Kind::rule, kAdagrad)};
    orders.insert(orders.end(), served.begin(), served.end());
    const Measured measured(leader, settings, orders);
    for (const Order& one : served) {
      const bool fetches = one.kind == Kind::fetch;
      const double link = measured.rate(order(fetches ? Kind::link_back : Kind::link_there));
      const double turns = measured.rate(order(Kind::link_turns));
      const double rule = one.rule == kNone ? 0 : measured.rate(order(Kind::rule, one.rule));
      const double rate = measured.rate(one);
      const auto share = [&](double of) { return rate / (rule > 0 ? std::min(of, rule) : of); };
      fmt::print("{:>6}  {:<8} {:>7}  {:>6.2f}  {:>6.2f}  {:>6.2f}  {:>6}   {:<14} {:<14}\n", size_text(bytes),
                 fetches ? "fetch" : kRules[one.rule], one.clients, rate, link, turns,
                 rule > 0 ? fmt::format("{:.2f}", rule) : "", verdict(share(link)), verdict(share(turns)));
      std::fflush(stdout);
      json += fmt::format(
          R"({}  {{"bytes": {}, "what": "{}", "rule": "{}", "clients": {}, "gb_per_second": {:.4f}, "link": {:.4f}, )"
          R"("link_in_turns": {:.4f}, "rule_alone": {}, "of_slower": {:.4f}}})",
          json.empty() ? "" : ",\n", bytes, fetches ? "fetch" : "push", kRules[one.rule], one.clients, rate, link,
          turns, rule > 0 ? fmt::format("{:.4f}", rule) : "null", share(link));
    }
  }
  return json;
}

/// Of as many clients as there are. Returns rows of JSON.
std::string updates(ClientEnd& leader, const Settings& settings, std::uint64_t clients) {
  std::string json;
  std::vector<Order> orders;
  for (const std::uint64_t kilobytes : settings.update_kilobytes) {
    orders.push_back({.kind = Kind::push, .rule = kSgd, .bytes = kilobytes << 10U, .clients = clients});
  }
  const Measured measured(leader, settings, orders);
  for (const Order& order : orders) {
    const double rate = static_cast<double>(order.clients) / measured.seconds(order);
    fmt::print("{:>6}  {:>7}  {:>10.0f}  {:>6.2f}\n", size_text(order.bytes), order.clients, rate,
               measured.rate(order));
    std::fflush(stdout);
    json += fmt::format(R"({}  {{"bytes": {}, "clients": {}, "updates_per_second": {:.1f}}})",
                        json.empty() ? "" : ",\n", order.bytes, order.clients, rate);
  }
  return json;
}

/// What is measured by one server and its clients: `lead` on the first client, which the others follow.
template <typename Lead>
void take_part(Fabric& fabric, const Lead& lead) {
  if (fabric.rank() == kServer) {
    ServerEnd(fabric).run();
    return;
  }
  ClientEnd client(fabric);
  if (fabric.rank() == kLeader) {
    lead(client);
    client.quit();
  } else {
    client.follow();
  }
}

struct Results {
  std::string bandwidths, updates;
};

void add_updates(Results& results, ClientEnd& leader, const Settings& settings, std::uint64_t clients) {
  results.updates += (results.updates.empty() ? "" : ",\n") + updates(leader, settings, clients);
}

void write(const Settings& settings, const Results& results) {
  const std::filesystem::path path = settings.out;
  if (path.has_parent_path()) {
    std::filesystem::create_directories(path.parent_path());
  }
  std::ofstream out(path);
  out << fmt::format(
      "{{\n \"transport\": \"{}\",\n \"rounds\": {},\n \"bandwidth\": [\n{}\n ],\n \"updates\": [\n{}\n ]\n}}\n",
      settings.transport, settings.rounds, results.bandwidths, results.updates);
  if (!out.flush()) {
    throw FileError("cannot write " + settings.out);
  }
}

/// One job after the other, each with no more clients than it needs.
Results run_on_sockets(const std::vector<std::string>& words, const Settings& settings) {
  Results results;
  const auto job = [&](std::uint64_t clients, const auto& lead) {
    std::vector<std::string> more = words;
    const int processes = 1 + static_cast<int>(clients);
    more.insert(more.end(), {"--processes", std::to_string(processes)});
    SocketProcesses sockets(more, processes, 0, {}, patience());
    take_part(sockets.fabric(), lead);
  };
  job(kBandwidthClients, [&](ClientEnd& leader) { results.bandwidths = bandwidths(leader, settings); });
  fmt::print(kUpdatesHeading);
  for (const std::uint64_t clients : settings.clients) {
    job(clients, [&](ClientEnd& leader) { add_updates(results, leader, settings, clients); });
  }
  return results;
}

Results run_on_mpi(Fabric& fabric, const Settings& settings) {
  Results results;
  const auto clients = static_cast<std::uint64_t>(fabric.size() - 1);
  take_part(fabric, [&](ClientEnd& leader) {
    if (clients == kBandwidthClients) {
      results.bandwidths = bandwidths(leader, settings);
    }
    fmt::print(kUpdatesHeading);
    add_updates(results, leader, settings, clients);
  });
  return results;
}

int run(int argc, char** argv) {
  CLI::App app("pushes and fetches of a parameter server against the link and the rule alone");
  Settings settings;
  int rank = 0, processes = 0;
  std::string folder;
  app.add_option("--transport", settings.transport)->check(CLI::IsMember({"mpi", "socket"}));
  app.add_option("--sizes", settings.kilobytes, "KB of parameters, for bandwidths")->delimiter(',');
  app.add_option("--update-sizes", settings.update_kilobytes, "KB of parameters, for updates/s")->delimiter(',');
  app.add_option("--clients", settings.clients, "sockets: how many push at once, for updates/s")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  app.add_option("--rounds", settings.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--milliseconds", settings.milliseconds, "of one measurement, at least")->check(CLI::Range(1, 60000));
  app.add_option("--out", settings.out, "JSON, such as bench/results/server.json");
  app.add_option("--rank", rank)->group("");
  app.add_option("--folder", folder)->group("");
  app.add_option("--processes", processes)->group("");
  CLI11_PARSE(app, argc, argv);
  for (const auto& sizes : {settings.kilobytes, settings.update_kilobytes}) {
    if (!std::ranges::all_of(sizes,
                             [](std::uint64_t size) { return std::has_single_bit(size) && size <= 1U << 19U; })) {
      throw InputError("--sizes and --update-sizes: expected powers of two up to 524288");
    }
  }
  if (settings.transport == "socket") {
    const std::vector<std::string> words(argv, argv + argc);
    if (rank > 0) {
      SocketProcesses sockets(words, processes, rank, folder, patience());
      take_part(sockets.fabric(), [](ClientEnd&) {});
      return 0;
    }
    const Results results = run_on_sockets(words, settings);
    if (!settings.out.empty()) {
      write(settings, results);
    }
    return 0;
  }
  MpiWorld world(patience());
  if (world.size() < 2) {
    throw InputError("start it with mpirun -n: a server, and at least one client");
  }
  {
    MpiFabric fabric(world);
    const Results results = run_on_mpi(fabric, settings);
    if (fabric.rank() == kLeader && !settings.out.empty()) {
      write(settings, results);
    }
  }
  std::fflush(stdout);
  if (!world.finish(patience())) {
    _exit(1);
  }
  return 0;
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  try {
    return distbelief::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "bench_server: " << error.what() << "\n";
    _exit(1);  // MPI's exit handlers would wait for the others
  }
}
