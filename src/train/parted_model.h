#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "comm/group.h"
#include "params/parameter_table.h"
#include "plan/partition.h"

namespace distbelief {

/// A network that the processes of a replica hold in parts, as they bring it to files and back. The first of them has
/// the files; whole parameters pass through it piece by piece, so that nobody ever has all of them. What is written does
/// not show how the network was cut. The first leads: while it uses arrays() or write(), the others are in serve() with
/// the same lists, until finish(). Throws ExchangeLost. One thread.
class PartedModel {
 public:
  struct Options {
    std::vector<Rank> members = {};  ///< part by part
    std::uint32_t epoch = 0;
    Clock::duration patience = std::chrono::minutes(10);
  };
  /// All borrowed; `own` is the table of this process's part.
  PartedModel(const Graph& graph, const ParameterTable& whole, const ParameterTable& own, const Partition& partition,
              Fabric& fabric, const Options& options);

  /// Numbers for each place of a process's part of the flat space: values, or a slot of an optimizer.
  struct List {
    std::string prefix;  ///< of the names of its arrays
    std::span<float> floats;
  };

  bool leads() const { return group_.position() == 0; }

  /// The leader: whole parameters of all lists, which bring themselves while they are written.
  std::vector<FloatArray> arrays(std::span<const List> lists);
  /// The leader: places [first, first + values.size()) of a whole parameter go to all that have a part of them.
  void write(const List& list, std::size_t number, const ParameterEntry& entry, std::int64_t first,
             std::span<const float> values);
  /// The leader: the others go on, and hear whether it succeeded in what it did.
  void finish(bool succeeded = true);
  bool serve(std::span<const List> lists);

 private:
  /// What the leader tells another process to do.
  struct Order {
    enum class Kind : std::int64_t { give, take, finish } kind = Kind::finish;
    std::int64_t list = 0;
    std::int64_t entry = 0;  ///< of the whole table
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t succeeded = 1;  ///< finish
  };
  void read(const List& list, std::size_t number, std::size_t entry, std::int64_t first, std::span<float> out);
  void send(int part, std::span<const std::byte> data);
  void receive(int part, std::span<std::byte> data);
  /// Floats that a part has of these places of a parameter; 0 where it has none.
  static std::int64_t floats_of(const ParameterEntry* part, std::int64_t first, std::int64_t count);

  const ParameterTable& whole_;
  const ParameterTable& own_;
  const Clock::duration patience_;
  Group group_;
  std::vector<ParameterTable> parts_;  ///< of all processes; the leader's only
  std::vector<std::uint32_t> sent_, received_;
  std::vector<float> buffer_;
};

}  // namespace distbelief
