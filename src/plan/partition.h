#pragma once

#include <vector>

#include "graph/graph.h"
#include "params/parameter_table.h"

namespace distbelief {

/// How one network is cut over the processes of a replica: which stage each node belongs to, and how the work of each
/// is shared out within its stage. The input belongs to every stage.
struct Partition {
  int stages = 1;
  int tensor = 1;
  std::vector<int> stage = {};  ///< of each node of the graph; never falls from a node to the next
  std::vector<Cut> cuts = {};   ///< of each node
  /// Of the work of a stage, for each process that has a part of it, stage by stage; empty: equal ones.
  std::vector<double> shares = {};

  int parts() const { return stages * tensor; }
};

/// One stage, which one process does whole: what every network can be.
Partition uncut(const Graph& graph);

/// How processes that share a stage hold a value that a node has made.
struct HeldValue {
  enum class Kind : std::uint8_t { whole, sliced, partial } kind = Kind::whole;
  int axis = 1;                           ///< of slices
  std::vector<std::int64_t> bounds = {};  ///< the i-th has places [bounds[i], bounds[i + 1])
  friend bool operator==(const HeldValue&, const HeldValue&) = default;
};

/// What each node makes under a partition, and which slice of its work each process does.
struct NodeWork {
  HeldValue made;
  std::vector<std::int64_t> bounds = {};  ///< of Layer::cut_places(); empty: each does all
};

/// For each node. Throws InputError that names the layer and what would work when a cut is not possible: the layer does
/// not offer it, or has less to share out than there are processes.
std::vector<NodeWork> share_out(const Graph& graph, const Partition& partition);

/// What one process of a replica computes, holds and exchanges.
struct NetworkPart {
  Graph graph;
  ParameterTable table;
  /// Ranges of the table whose gradients are parts of a sum over those that share the stage.
  std::vector<Range> partial_gradients = {};
};

/// `whole` is the table of the whole graph; what is frozen there is so in the part. Throws InputError as share_out().
NetworkPart part_of(const Graph& graph, const ParameterTable& whole, const Partition& partition, int stage,
                    int position);

/// `places` in as many runs as there are shares, in proportion to them, none of them empty; at multiples of 16 where
/// there are enough, as vector instructions like it.
std::vector<std::int64_t> cut_places(std::int64_t places, int count, const std::vector<double>& shares = {});

}  // namespace distbelief
