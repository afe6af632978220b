#include "config/run_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/split.h"
#include "cluster/chaos_script.h"
#include "cluster/store_url.h"

namespace distbelief {
namespace {

// --- values as text

template <typename Number>
Number parse_number(const std::string& text, const char* what) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  bool sound = error == std::errc() && stop == end;
  if constexpr (std::is_floating_point_v<Number>) {
    sound = sound && std::isfinite(value);
  }
  if (!sound) {
    throw InputError(fmt::format("expected {}, got '{}'", what, text));
  }
  return value;
}

bool parse_bool(const std::string& text) {
  if (text == "true" || text == "yes" || text == "on" || text == "1") {
    return true;
  }
  if (text == "false" || text == "no" || text == "off" || text == "0") {
    return false;
  }
  throw InputError(fmt::format("expected true or false, got '{}'", text));
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (std::string part : split(text, ',')) {
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!part.empty()) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

/// The shortest text that reads back to the same number.
std::string number_text(double value) { return fmt::format("{}", value); }

/// As YAML reads it back: in quotes unless it is a plain word or number.
std::string yaml_scalar(const std::string& value) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/+-";
  const bool null = value == "null" || value == "Null" || value == "NULL";
  if (!value.empty() && !null && value[0] != '-' && value.find_first_not_of(kPlain) == std::string::npos) {
    return value;
  }
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
    }
    const auto byte = static_cast<unsigned char>(c);
    quoted += byte < 0x20 ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return quoted + '"';
}

// --- the table

/// Limits of a number, as the error says them.
struct Limits {
  double least;
  double most;
  const char* text;
};
constexpr Limits kAny{-1e300, 1e300, "a number"};
constexpr Limits kPositive{1e-300, 1e300, "a number above 0"};
constexpr Limits kNotNegative{0, 1e300, "a number of 0 or more"};
constexpr Limits kFraction{0, 0.999999, "a fraction of 0 or more and less than 1"};
constexpr Limits kCount{1, 1e15, "a whole number of 1 or more"};
constexpr Limits kCountOrZero{0, 1e15, "a whole number of 0 or more"};
constexpr Limits kWorkers{1, 4096, "a whole number from 1 to 4096"};
constexpr Limits kServers{0, 4096, "a whole number from 0 to 4096"};
constexpr Limits kHolders{1, 2, "1 or 2"};
constexpr Limits kShelves{0, 60, "a number from 0 to 60"};
constexpr Limits kHistory{1, 100, "a whole number from 1 to 100"};
constexpr Limits kShare{1e-9, 1, "a share above 0, up to 1"};
constexpr Limits kGrowth{1, 1e9, "a number of 1 or more"};
constexpr Limits kThreads{0, 4096, "a whole number from 0 to 4096"};
constexpr Limits kWhole{-1, 4096, "a whole number from -1 to 4096"};

class Table {
 public:
  void group(std::string name) { group_ = std::move(name); }

  RunOption& add(std::string key, std::string value, std::string help) {
    options_.push_back({std::move(key), std::move(value), std::move(help), group_, {}, {}, {}});
    return options_.back();
  }
  void text(std::string key, std::string RunConfig::*member, std::string value, std::string help,
            const std::vector<std::string>& choices = {}) {
    RunOption& option = add(std::move(key), std::move(value), std::move(help));
    option.choices = choices;
    option.get = [member](const RunConfig& config) { return config.*member; };
    option.set = [member, choices](RunConfig& config, const std::string& text) {
      if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
        throw InputError(fmt::format("expected {}, got '{}'", fmt::join(choices, " or "), text));
      }
      config.*member = text;
    };
  }
  template <typename Number>
  void number(std::string key, Number RunConfig::*member, const Limits& limits, std::string value, std::string help) {
    RunOption& option = add(std::move(key), std::move(value), std::move(help));
    option.get = [member](const RunConfig& config) {
      if constexpr (std::is_floating_point_v<Number>) {
        return number_text(config.*member);
      } else {
        return std::to_string(config.*member);
      }
    };
    option.set = [member, limits](RunConfig& config, const std::string& text) {
      const Number parsed = parse_number<Number>(text, limits.text);
      if (static_cast<double>(parsed) < limits.least || static_cast<double>(parsed) > limits.most) {
        throw InputError(fmt::format("expected {}, got '{}'", limits.text, text));
      }
      config.*member = parsed;
    };
  }
  void flag(std::string key, bool RunConfig::*member, std::string help) {
    RunOption& option = add(std::move(key), "", std::move(help));
    option.get = [member](const RunConfig& config) { return config.*member ? "true" : "false"; };
    option.set = [member](RunConfig& config, const std::string& text) { config.*member = parse_bool(text); };
  }
  std::vector<RunOption> take() { return std::move(options_); }

 private:
  std::string group_;
  std::vector<RunOption> options_;
};

std::vector<RunOption> make_options() {
  Table table;
  table.group("Model and data");
  table.text("model", &RunConfig::model, "NAME|FILE",
             "a model that 'distbelief models' lists, or a model file in YAML");
  {
    RunOption& option =
        table.add("model-options", "K=V,...", "sizes of the model, where it has any: see 'distbelief models'");
    option.get = [](const RunConfig& config) {
      std::vector<std::string> parts;
      for (const auto& [key, value] : config.model_options) {
        parts.push_back(key + "=" + value);
      }
      return fmt::format("{}", fmt::join(parts, ","));
    };
    option.set = [](RunConfig& config, const std::string& text) {
      config.model_options.clear();
      std::string* last = nullptr;
      for (const std::string& part : split_list(text)) {
        const std::size_t equals = part.find('=');
        if (equals == std::string::npos && last != nullptr) {
          *last += "," + part;  // a value that is a list: hidden=512,512
          continue;
        }
        if (equals == std::string::npos || equals == 0) {
          throw InputError(fmt::format("expected KEY=VALUE, got '{}'", part));
        }
        last = &config.model_options[part.substr(0, equals)];
        *last = part.substr(equals + 1);
      }
    };
  }
  table.text("data", &RunConfig::data, "NAME|FILE|DIR", "a data set that 'distbelief data' lists, a file or a folder");
  table.text("test-data", &RunConfig::test_data, "FILE|DIR", "the test part, when --data has none of its own");
  table.text("data-dir", &RunConfig::data_dir, "DIR", "where data sets that are not part of the system are looked for");
  table.text("label-column", &RunConfig::label_column, "NAME", "CSV: the column that holds the class or target");
  table.text("label-kind", &RunConfig::label_kind, "KIND",
             "CSV, LIBSVM, NPY: classes, or values to be predicted; auto: classes when all are whole numbers or words",
             {"auto", "classes", "values"});
  table.number("image-size", &RunConfig::image_size, kCountOrZero, "PIXELS",
               "image folders: resize to so many pixels a side; 0: as the first image is");
  table.number("features", &RunConfig::features, kCountOrZero, "N", "LIBSVM: number of columns; 0 counts them");
  table.text("normalize", &RunConfig::normalize, "HOW", "auto: each channel to mean 0 and deviation 1; none: as it is",
             {"auto", "none"});
  table.number("crop-padding", &RunConfig::crop_padding, kCountOrZero, "PIXELS",
               "augment: random shifts by up to so many pixels");
  table.flag("flip", &RunConfig::flip, "augment: mirror every second image");
  table.number("validation", &RunConfig::validation, kFraction, "FRACTION",
               "set this part of the training data aside and keep the model that does best on it");

  table.group("Length");
  table.number("epochs", &RunConfig::epochs, kCount, "N", "passes over the training data");
  table.number("batch", &RunConfig::batch, kCount, "N",
               "samples an update, over all workers; averaging, gossip, async, downpour, softsync: of each worker; "
               "hogwild: of each "
               "thread");
  table.number(
      "accumulate", &RunConfig::accumulate, kCount, "N",
      "compute a worker's batch in so many parts, whose gradients are added up: for batches larger than memory");
  table.number("seed", &RunConfig::seed, kCountOrZero, "N",
               "decides initial weights, order of samples, dropout, augmentation");
  table.number("early-stop", &RunConfig::early_stop, kCountOrZero, "EPOCHS",
               "stop when validation has not improved for so many epochs; 0: never");

  table.group("Update rule");
  table.text("optimizer", &RunConfig::optimizer, "RULE", "sgd, momentum, nesterov, adagrad, rmsprop, adam or adamw");
  table.number("lr", &RunConfig::lr, kPositive, "RATE", "learning rate");
  table.number("momentum", &RunConfig::momentum, kAny, "M",
               "sgd, momentum, nesterov, rmsprop: part of the last step that goes on; -1: the rule's own");
  table.flag("nesterov", &RunConfig::nesterov, "sgd, momentum: look ahead");
  table.number("beta1", &RunConfig::beta1, kFraction, "B", "adam, adamw: memory of the mean");
  table.number("beta2", &RunConfig::beta2, kFraction, "B", "adam, adamw: memory of the squares");
  table.number("rho", &RunConfig::rho, kFraction, "R", "rmsprop: memory of the squares");
  table.number("epsilon", &RunConfig::epsilon, kAny, "E",
               "adagrad, rmsprop, adam, adamw: keeps divisions sane; -1: the rule's own");
  table.number("weight-decay", &RunConfig::weight_decay, kNotNegative, "D",
               "pulls weights (not biases and scales) towards 0");
  table.number("clip-norm", &RunConfig::clip_norm, kNotNegative, "L", "shrinks a gradient longer than this; 0: never");
  table.number("clip-value", &RunConfig::clip_value, kNotNegative, "V",
               "limits each element of the gradient; 0: never");
  table.text("schedule", &RunConfig::schedule, "NAME", "how the rate changes over the run",
             {"constant", "step", "cosine"});
  table.number("warmup-epochs", &RunConfig::warmup_epochs, kNotNegative, "N",
               "the rate rises evenly over so many epochs first");
  table.number("step-every", &RunConfig::step_every, kNotNegative, "EPOCHS",
               "schedule step: multiply by gamma this often");
  {
    RunOption& option = table.add("milestones", "E,...", "schedule step: multiply by gamma at these epochs");
    option.get = [](const RunConfig& config) { return fmt::format("{}", fmt::join(config.milestones, ",")); };
    option.set = [](RunConfig& config, const std::string& text) {
      config.milestones.clear();
      for (const std::string& part : split_list(text)) {
        config.milestones.push_back(parse_number<double>(part, "numbers separated by commas"));
      }
    };
  }
  table.number("gamma", &RunConfig::gamma, kPositive, "G", "schedule step: the factor");
  table.number("lr-floor", &RunConfig::lr_floor, kNotNegative, "RATE", "schedule cosine: the rate at the end");

  table.group("Who computes");
  table.text(
      "algorithm", &RunConfig::algorithm, "NAME",
      "local: one process; allreduce: each worker on its share of a batch, gradients summed over all; sync: the "
      "same, with the update made by the first worker; averaging: each alone on its slice, parameters averaged; "
      "gossip: each on batches of its own, gradients sent to all others and applied as they come; async: each at "
      "its own pace, gradients pushed to parameter servers and parameters fetched from them; downpour: the same, "
      "less often, with steps of the worker's own between; softsync: as async, with updates of the mean of several "
      "gradients; hogwild: one process, whose threads each take batches of "
      "their own and update the parameters without locks; sandblaster: L-BFGS over the whole data, whose portions go "
      "to "
      "whoever is free",
      {"local", "allreduce", "sync", "averaging", "gossip", "async", "downpour", "softsync", "hogwild", "sandblaster"});
  table.number("workers", &RunConfig::workers, kWorkers, "N",
               "processes that train together; with --hosts as many as they have places");
  table.text(
      "transport", &RunConfig::transport, "HOW",
      "how workers talk: over MPI, sockets, or as threads of one process; auto: MPI where it is installed, sockets "
      "with --hosts or TLS",
      {"auto", "mpi", "socket", "threads"});
  table.number(
      "servers", &RunConfig::servers, kServers, "N",
      "async, downpour, softsync, sync with backup workers: processes that hold the parameters; 0: each worker "
      "holds a part");
  table.number(
      "replication", &RunConfig::replication, kHolders, "N",
      "with two servers or more, or two workers that have one inside: 2: each parameter is on two of them, and "
      "one may die; 1: when one dies the run ends, and goes on from its checkpoint");
  table.number("shelves", &RunConfig::shelves, kShelves, "N",
               "parts in which parameters move between servers that come and go: more are shared out more evenly, and "
               "each is a message of its own; 0: as many as are worth it");
  table.number("n-push", &RunConfig::n_push, kWorkers, "BATCHES",
               "downpour, and others with --thread-mode hogwild: gradients of so many batches are summed before they "
               "are pushed");
  table.number("n-fetch", &RunConfig::n_fetch, kWorkers, "BATCHES",
               "downpour: parameters are fetched every so many batches");
  table.text("prefetch", &RunConfig::prefetch, "WHEN",
             "downpour: on: parameters are asked for one batch early, and come while it computes; auto: when they are "
             "not fetched for every batch",
             {"auto", "on", "off"});
  table.text(
      "adaptive", &RunConfig::adaptive, "WHEN",
      "downpour: on: instead of --n-push and --n-fetch, each worker begins with exchanges for every batch and small "
      "leases, and makes both larger while it waits for links or leases",
      {"on", "off"});
  table.number("n", &RunConfig::n, kWorkers, "N",
               "softsync: an update is made of the gradients of one N-th of the workers");
  table.text("staleness-lr", &RunConfig::staleness_lr, "WHEN",
             "on: the rate of a gradient is divided by how many updates old it is; auto: with softsync",
             {"auto", "on", "off"});
  table.number("warm-start", &RunConfig::warm_start, kCountOrZero, "STEPS",
               "with servers: steps of one worker before the others begin");
  {
    RunOption& option = table.add("max-staleness", "N|none",
                                  "async, downpour, softsync: a gradient of values that have seen more than N updates "
                                  "since is dropped, and its samples are computed again");
    option.get = [](const RunConfig& config) {
      return config.max_staleness < 0 ? "none" : std::to_string(config.max_staleness);
    };
    option.set = [](RunConfig& config, const std::string& text) {
      const char* const expected = "a whole number of 0 or more, or none";
      config.max_staleness = text == "none" ? -1 : parse_number<std::int64_t>(text, expected);
      if (config.max_staleness < 0 && text != "none") {
        throw InputError(fmt::format("expected {}, got '{}'", expected, text));
      }
    };
  }
  table.number("backup-workers", &RunConfig::backup_workers, kCountOrZero, "B",
               "sync: a step is made of the first gradients, of all workers but B; samples of a late one are computed "
               "again, in a later step");
  table.text(
      "divergence-guard", &RunConfig::divergence_guard, "WHEN",
      "with servers: on: all rates are halved when the loss has become worse than it was at first, and than twice "
      "its best",
      {"on", "off"});
  {
    RunOption& option =
        table.add("average-every", "STEPS|epoch|end",
                  "averaging: how often: after so many steps and each epoch; after each epoch; or once, "
                  "at the end of training");
    option.get = [](const RunConfig& config) {
      return config.average_every < 0    ? "end"
             : config.average_every == 0 ? "epoch"
                                         : std::to_string(config.average_every);
    };
    option.set = [](RunConfig& config, const std::string& text) {
      if (text == "end" || text == "epoch") {
        config.average_every = text == "end" ? -1 : 0;
        return;
      }
      const char* const expected = "a whole number of 1 or more, epoch or end";
      config.average_every = parse_number<std::int64_t>(text, expected);
      if (config.average_every < 1) {
        throw InputError(fmt::format("expected {}, got '{}'", expected, text));
      }
    };
  }
  table.text("outer-optimizer", &RunConfig::outer_optimizer, "RULE",
             "averaging: the rule that moves the common parameters towards the average; none: they become it",
             {"none", "sgd", "momentum", "nesterov"});
  table.number("outer-lr", &RunConfig::outer_lr, kPositive, "RATE", "averaging: learning rate of the outer rule");
  table.number("outer-momentum", &RunConfig::outer_momentum, kFraction, "M", "averaging: momentum of the outer rule");
  table.number("gossip-quorum", &RunConfig::gossip_quorum, kWhole, "N",
               "gossip: wait in each step until so many of the other workers' gradients of it have come; 0: never; -1: "
               "half of them");
  table.text(
      "elastic-batch", &RunConfig::elastic_batch, "RULE",
      "allreduce, sync: when the number of workers changes while training: global: they share the same batch out "
      "anew; worker: each keeps its share, and the learning rate follows the batch",
      {"global", "worker"});
  {
    RunOption& option = table.add(
        "balance", "auto|on|off|S,...",
        "allreduce, sync: on: each worker's share of the batch follows the speed that is measured while it trains; "
        "auto: where workers are on several hosts; S,...: shares in these proportions, one for each worker");
    option.get = [](const RunConfig& config) { return config.balance; };
    option.set = [](RunConfig& config, const std::string& text) {
      RunConfig read;
      read.balance = text;
      (void)fixed_balance(read);
      config.balance = text;
    };
  }
  table.flag("hogwild-locks", &RunConfig::hogwild_locks,
             "hogwild: take a lock for each read and update after all, to see what it costs");
  table.number("threads", &RunConfig::threads, kThreads, "N",
               "compute threads of each worker; 0: the machine's cores, shared out");
  table.text(
      "thread-mode", &RunConfig::thread_mode, "MODE",
      "kernels: all threads inside each kernel; lanes: each on its part of the batch; auto: what measured faster; "
      "hogwild: async, downpour and softsync: each on batches of its own, of --n-push that are pushed together, with "
      "updates of the worker's copy without locks",
      {"auto", "kernels", "lanes", "hogwild"});
  table.text("bind", &RunConfig::bind, "WHERE",
             "cores: workers of one machine share its cores out and stay on theirs, where there are enough; none: the "
             "system places them",
             {"cores", "none"});
  table.number("loader-threads", &RunConfig::loader_threads, kWhole, "N",
               "threads that read data ahead; -1: as the data needs");

  table.group("One network over several workers");
  table.number(
      "partition", &RunConfig::partition, kServers, "N",
      "cut the network over N workers, in the way that the planner finds best; 0: as --stages and --tensor say");
  table.number("stages", &RunConfig::stages, kServers, "N",
               "cut it into N runs of layers, through which micro-batches go as through a pipeline; 0: as planned");
  table.number("tensor", &RunConfig::tensor, kServers, "N",
               "share the work of each layer out among N workers; 0: as planned");
  table.number("replicas", &RunConfig::replicas, kServers, "N",
               "copies of the network, instead of --workers, which counts all workers of all copies");
  table.text("stage-at", &RunConfig::stage_at, "LAYER,...",
             "the first layer of each stage but the first, instead of what is planned");
  table.text(
      "cuts", &RunConfig::cuts, "LAYER=CUT,...",
      "how layers are cut, instead of what is planned: outputs, inputs, channels, region; LAYER may have * and ?");
  table.text(
      "shares", &RunConfig::shares, "S,...|auto",
      "how work is shared out among the --tensor workers of a stage, such as 3,1 where the first is three times as "
      "fast, or 3,1/1,1 for each stage; auto: by the speeds that the workers measure before they begin; equally if "
      "not said");
  table.number("micro-batches", &RunConfig::micro_batches, kCountOrZero, "N",
               "parts of a batch that go through the stages one after the other; 0: as planned");
  table.text("pipeline", &RunConfig::pipeline, "ORDER",
             "1f1b: backward as soon as possible, which keeps few micro-batches in memory; gpipe: all forward first",
             {"1f1b", "gpipe"});
  table.flag("recompute", &RunConfig::recompute,
             "compute what is between the layers of a stage again for backward, instead of keeping it");

  table.group("Sandblaster");
  table.number("iterations", &RunConfig::iterations, kCount, "N", "of L-BFGS; each is a line search");
  table.number("history", &RunConfig::history, kHistory, "PAIRS", "steps that a direction is made of");
  table.number("portion", &RunConfig::portion, kCountOrZero, "SAMPLES",
               "what is handed out: a multiple of --batch; 0: so that each worker has many");
  table.number("portions-per-push", &RunConfig::portions_per_push, kWorkers, "N",
               "gradients of so many portions are summed before they are pushed; fewer towards the end");
  table.text("backup-portions", &RunConfig::backup_portions, "WHEN",
             "on: the last portions are handed out again to idle workers, and the first answer wins", {"on", "off"});
  table.number("subset", &RunConfig::subset, kShare, "SHARE", "of the data that the objective is of at first");
  table.number("subset-growth", &RunConfig::subset_growth, kGrowth, "FACTOR",
               "that the subset grows by after each iteration, until it is all of the data");
  table.number("tolerance", &RunConfig::tolerance, kNotNegative, "LENGTH",
               "ends when the gradient is no longer than this");

  table.group("Failures");
  table.number("restarts", &RunConfig::restarts, kCountOrZero, "N",
               "how often a worker that died is replaced, or a job that cannot go on is started again from its newest "
               "checkpoint");
  {
    RunOption& option = table.add("store", "etcd://HOST:PORT/NAME",
                                  "where the coordinator writes down what its successor must know; default: the run's "
                                  "folder. NAME is this job's own; see 'distbelief guard --help'");
    option.get = [](const RunConfig& config) { return config.store; };
    option.set = [](RunConfig& config, const std::string& text) {
      config.store = text.empty() ? "" : StoreUrl::parse(text).text();
    };
  }
  table.number("standby", &RunConfig::standby, kCountOrZero, "N",
               "so many more processes wait, ready to take the place of a worker that dies");
  table.number("stall-after", &RunConfig::stall_after, kNotNegative, "SECONDS",
               "a worker that holds up the others for so long is named; 0: never");
  table.number("straggler-after", &RunConfig::straggler_after, kNotNegative, "SECONDS",
               "a worker whose steps take clearly longer than those of the others for so long is named, with the "
               "cause; 0: never");
  {
    RunOption& option =
        table.add("chaos", "EVENT;...", "let things go wrong, such as 'kill worker 1 at step 200': see docs/jobs.md");
    option.get = [](const RunConfig& config) { return config.chaos; };
    option.set = [](RunConfig& config, const std::string& text) {
      (void)parse_chaos(text);
      config.chaos = text;
    };
  }

  table.group("Several hosts");
  table.text(
      "hosts", &RunConfig::hosts, "HOST:N,...|FILE",
      "start N workers on each of these hosts (HOST alone: 1); a file has one host a line, HOST:N or HOST slots=N");
  table.text("rsh", &RunConfig::rsh, "COMMAND", "how to run a program on a host: COMMAND HOST PROGRAM ...");
  table.text("listen", &RunConfig::listen, "ADDRESS[:PORT]",
             "where the coordinator listens; default: 127.0.0.1, with --hosts all addresses");
  table.text("advertise", &RunConfig::advertise, "ADDRESS",
             "this machine's address for the other hosts; default: the one that routes to them");
  table.text("tls-cert", &RunConfig::tls_cert, "FILE",
             "encrypt control and socket connections: this host's certificate (PEM)");
  table.text("tls-key", &RunConfig::tls_key, "FILE", "the certificate's private key");
  table.text("tls-ca", &RunConfig::tls_ca, "FILE", "the authority that every process's certificate must come from");

  table.group("Beginning and results");
  table.text("init", &RunConfig::init, "FILE",
             "begin with the weights of a model or run; layers that changed begin anew");
  {
    RunOption& option = table.add("freeze", "PATTERN,...", "parameters that stay as they are, such as 'conv*'");
    option.get = [](const RunConfig& config) { return fmt::format("{}", fmt::join(config.freeze, ",")); };
    option.set = [](RunConfig& config, const std::string& text) { config.freeze = split_list(text); };
  }
  table.text("out", &RunConfig::out, "DIR", "folder for all results; default runs/MODEL-DATA-N");
  table.number("checkpoint-every", &RunConfig::checkpoint_every, kCountOrZero, "STEPS",
               "how often a checkpoint is written; 0: at the end of each epoch");
  table.number("keep-checkpoints", &RunConfig::keep_checkpoints, kCount, "N",
               "the newest so many stay; the best one always does");
  table.text("checkpoint-copy", &RunConfig::checkpoint_copy, "DIR",
             "a second place for all checkpoints, on another disk or machine; --resume DIR goes on from there");
  table.number("log-every", &RunConfig::log_every, kCount, "STEPS", "how often metrics are written");
  return table.take();
}

}  // namespace

const std::vector<RunOption>& run_options() {
  static const std::vector<RunOption> options = make_options();  // a constant table, made once
  return options;
}

void set_option(RunConfig& config, std::string_view key, const std::string& value, std::string_view where) {
  for (const RunOption& option : run_options()) {
    if (option.key == key) {
      try {
        option.set(config, value);
      } catch (const InputError& error) {
        throw InputError(fmt::format("{}: key '{}': {}", where, key, error.what()));
      }
      return;
    }
  }
  std::vector<std::string_view> names;
  for (const RunOption& option : run_options()) {
    names.push_back(option.key);
  }
  throw InputError(fmt::format("{}: there is no key '{}'{}", where, key, did_you_mean(key, names)));
}

std::string config_text(const RunConfig& config) {
  std::string text;
  std::string group;
  for (const RunOption& option : run_options()) {
    if (option.group != group) {
      group = option.group;
      text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", group);
    }
    text += fmt::format("{}: {}\n", option.key, yaml_scalar(option.get(config)));
  }
  return text;
}

}  // namespace distbelief
