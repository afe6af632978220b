#include "train/job_hosts.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "metrics/machine.h"
#include "transport/socket/local_address.h"

namespace distbelief {
namespace {

constexpr int kMostSlots = 4096;
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

int parse_slots(const std::string& text, const std::string& part) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMostSlots) {
    throw InputError(fmt::format("'{}': expected a number of workers from 1 to {}, got '{}'", part, kMostSlots, text));
  }
  return slots;
}

/// "a", "a:4", "[fe80::7]", "[fe80::7]:4".
JobHost parse_host(const std::string& part) {
  const bool bracketed = part.starts_with('[');
  const std::size_t end = bracketed ? part.find(']') : std::min(part.find(':'), part.size());
  if (bracketed && (end == std::string::npos || (end + 1 < part.size() && part[end + 1] != ':'))) {
    throw InputError(fmt::format("'{}': expected [IPV6] or [IPV6]:N", part));
  }
  JobHost host = {.name = bracketed ? part.substr(1, end - 1) : part.substr(0, end)};
  const std::string_view letters = bracketed ? "0123456789abcdefABCDEF:.%" : kNameLetters;
  if (host.name.empty() || host.name[0] == '-' || host.name.find_first_not_of(letters) != std::string::npos) {
    throw InputError(fmt::format("'{}': expected HOST or HOST:N", part));
  }
  const std::size_t colon = bracketed ? end + 1 : end;
  if (colon < part.size()) {
    host.slots = parse_slots(part.substr(colon + 1), part);
  }
  return host;
}

std::vector<JobHost> checked(std::vector<JobHost> hosts) {
  std::set<std::string> names;
  for (const JobHost& host : hosts) {
    if (!names.insert(host.name).second) {
      throw InputError(fmt::format("host '{}' is named twice", host.name));
    }
  }
  if (hosts.empty()) {
    throw InputError("there is no host");
  }
  return hosts;
}

/// One host a line: "a", "a:4" or, as Open MPI's files have it, "a slots=4". Empty lines and what follows '#' are left
/// out.
std::vector<JobHost> read_hosts(const std::string& file) {
  std::istringstream lines(read_file(file));
  std::vector<JobHost> hosts;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more;
    if (!(words >> name)) {
      continue;
    }
    try {
      hosts.push_back(parse_host(name));
      if (words >> slots) {
        if (!slots.starts_with("slots=") || words >> more) {
          throw InputError(fmt::format("expected HOST, HOST:N or HOST slots=N, got '{}'", line));
        }
        hosts.back().slots = parse_slots(slots.substr(6), slots);
      }
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}:{}: {}", file, number, error.what()));
    }
  }
  return checked(std::move(hosts));
}

std::string hosts_text(const std::vector<JobHost>& hosts) {
  std::string text;
  for (const JobHost& host : hosts) {
    const bool brackets = host.name.find(':') != std::string::npos;
    text += fmt::format("{}{}{}{}:{}", text.empty() ? "" : ",", brackets ? "[" : "", host.name, brackets ? "]" : "",
                        host.slots);
  }
  return text;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/+-=:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

/// "0.0.0.0", "10.0.0.7:4000", "[::]:4000".
Address parse_listen(const std::string& text) {
  const bool has_port = text.starts_with('[') ? text.find("]:") != std::string::npos : text.find(':') < text.size();
  try {
    return Address::parse("tcp:" + text + (has_port ? "" : ":0"));
  } catch (const InputError&) {
    throw InputError(fmt::format("--listen {}: expected ADDRESS or ADDRESS:PORT, an IPv6 number in brackets", text));
  }
}

}  // namespace

std::vector<JobHost> parse_hosts(const std::string& text) {
  std::vector<JobHost> hosts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    hosts.push_back(parse_host(part));
  }
  return checked(std::move(hosts));
}

void settle_hosts(RunConfig& config, std::int64_t otherwise) {
  if (!config.listen.empty()) {
    (void)parse_listen(config.listen);
  }
  if (config.hosts.empty()) {
    config.workers = config.workers == 0 ? otherwise : config.workers;
    return;
  }
  const std::string given = config.hosts;
  std::vector<JobHost> hosts;
  if (std::filesystem::is_regular_file(given)) {
    hosts = read_hosts(given);
  } else if (given.find('/') != std::string::npos) {
    throw InputError(fmt::format("--hosts {}: there is no such file", given));
  } else {
    try {
      hosts = parse_hosts(given);
    } catch (const InputError& error) {
      throw InputError(fmt::format("--hosts {}: {}", given, error.what()));
    }
  }
  std::int64_t places = 0;
  for (const JobHost& host : hosts) {
    places += host.slots;
  }
  if (places > kMostSlots) {
    throw InputError(fmt::format("--hosts {}: {} workers are more than {}", given, places, kMostSlots));
  }
  const std::int64_t servers = processes_of(config) - config.workers;
  if (places <= servers) {
    throw InputError(fmt::format("--hosts {} has places for {}: with --servers {} none is left for a worker", given,
                                 places, servers));
  }
  if (config.workers != 0 && config.workers + servers != places) {
    throw InputError(fmt::format("--workers {} does not fit --hosts {}, which has places for {}; leave --workers out",
                                 config.workers, given, places));
  }
  if (is_of_one_process(config.algorithm)) {
    throw InputError(fmt::format("--hosts {}: --algorithm {} trains in one process; choose another: allreduce", given,
                                 config.algorithm));
  }
  if (config.transport == "threads") {
    throw InputError(fmt::format("--hosts {}: --transport threads is for one machine; choose socket or mpi", given));
  }
  config.workers = places - servers;
  config.hosts = hosts_text(hosts);
}

std::vector<JobHost> hosts_of_ranks(const RunConfig& config, bool over_mpi) {
  if (config.hosts.empty()) {
    return {};
  }
  const std::vector<JobHost> hosts = parse_hosts(config.hosts);
  std::vector<int> free;
  free.reserve(hosts.size());
  for (const JobHost& host : hosts) {
    free.push_back(host.slots);
  }
  std::vector<JobHost> of_servers;
  const std::int64_t servers = over_mpi ? 0 : processes_of(config) - config.workers;
  for (std::size_t i = 0; std::ssize(of_servers) < servers; i = (i + 1) % hosts.size()) {
    if (free[i] > 0) {
      --free[i];
      of_servers.push_back(hosts[i]);
    }
  }
  std::vector<JobHost> of_ranks;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    of_ranks.insert(of_ranks.end(), static_cast<std::size_t>(free[i]), hosts[i]);
  }
  of_ranks.insert(of_ranks.end(), of_servers.begin(), of_servers.end());
  return of_ranks;
}

bool is_this_machine(const JobHost& host) {
  const std::string name = this_machine().host;
  if (host.name == "localhost" || host.name == "127.0.0.1" || host.name == "::1" || host.name == name ||
      host.name == name.substr(0, name.find('.'))) {
    return true;
  }
  const std::vector<std::string> numbers = hosts_of_this_machine();
  return std::ranges::find(numbers, host.name) != numbers.end();
}

std::vector<std::string> command_on(const JobHost& host, const RunConfig& config,
                                    const std::vector<std::string>& command) {
  if (is_this_machine(host)) {
    return command;
  }
  std::istringstream words(config.rsh);
  std::vector<std::string> argv;
  for (std::string word; words >> word;) {
    argv.push_back(word);
  }
  if (argv.empty()) {
    throw InputError("--rsh is empty: expected a command such as ssh");
  }
  argv.push_back(host.name);
  for (const std::string& word : command) {
    argv.push_back(shell_word(word));
  }
  return argv;
}

std::vector<std::string> mpi_host_options(std::string_view mpi, const RunConfig& config,
                                          const std::vector<std::string>& environment) {
  if (config.hosts.empty()) {
    return {};
  }
  if (mpi == "MPICH") {  // its launcher hands the whole environment on
    std::vector<std::string> options = {"-hosts", config.hosts, "-localhost",
                                        coordinator_place(config, false).hosts.front()};
    if (config.rsh == RunConfig().rsh) {
      options.insert(options.end(), {"-launcher", "ssh"});
    } else if (config.rsh.find(' ') == std::string::npos) {
      options.insert(options.end(), {"-launcher", "rsh", "-launcher-exec", config.rsh});
    } else {
      throw InputError(fmt::format("--rsh {}: MPICH takes the name of a program only, without arguments", config.rsh));
    }
    return options;
  }
  // Without the last three, mpirun's helper on a host that was cut off would wait for it for hours; mpi_helper.h has
  // what they do not reach.
  std::vector<std::string> options = {"--host",
                                      config.hosts,
                                      "--mca",
                                      "plm_rsh_agent",
                                      config.rsh,
                                      "--mca",
                                      "oob_tcp_keepalive_time",
                                      "2",
                                      "--mca",
                                      "oob_tcp_keepalive_intvl",
                                      "1",
                                      "--mca",
                                      "oob_tcp_keepalive_probes",
                                      "3"};
  std::set<std::string> names;
  for (const std::string& variable : environment) {
    for (const std::string_view prefix : {"UCX_", "FI_", "OMP_", "ASAN_", "TSAN_", "UBSAN_"}) {
      if (variable.starts_with(prefix)) {
        names.insert(variable.substr(0, variable.find('=')));
      }
    }
  }
  for (const std::string& name : names) {
    options.insert(options.end(), {"-x", name});
  }
  return options;
}

CoordinatorPlace coordinator_place(const RunConfig& config, bool several_hosts) {
  const bool reachable = several_hosts || !config.hosts.empty();
  CoordinatorPlace place = {.listen = Address::tcp(reachable ? "0.0.0.0" : "127.0.0.1", 0), .hosts = {}};
  if (!config.listen.empty()) {
    place.listen = parse_listen(config.listen);
  }
  if (!config.advertise.empty()) {
    place.hosts = {config.advertise};
    return place;
  }
  const std::string& host = place.listen.host;
  if (host != "0.0.0.0" && host != "::") {
    place.hosts = {host};
    return place;
  }
  const auto add = [&](const std::string& number) {
    if (!number.empty() && std::ranges::find(place.hosts, number) == place.hosts.end()) {
      place.hosts.push_back(number);
    }
  };
  if (!config.hosts.empty()) {
    for (const JobHost& other : parse_hosts(config.hosts)) {
      if (!is_this_machine(other)) {
        add(local_host_towards(Address::tcp(other.name, 9)));
      }
    }
  }
  for (const std::string& number : hosts_of_this_machine()) {
    add(number);
  }
  if (place.hosts.empty()) {
    place.hosts = {"127.0.0.1"};
  }
  return place;
}

}  // namespace distbelief
