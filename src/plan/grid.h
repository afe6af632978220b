#pragma once

namespace distbelief {

/// How the worker processes of a job are arranged: copies of the network, each cut into stages that follow each other,
/// each of which several processes share.
struct Grid {
  int replicas = 1;
  int stages = 1;
  int tensor = 1;  ///< processes that share the layers of a stage

  int parts() const { return stages * tensor; }
  int processes() const { return replicas * parts(); }
  friend bool operator==(const Grid&, const Grid&) = default;
};

/// Where a process stands in a grid.
struct GridPlace {
  int replica = 0;
  int stage = 0;
  int tensor = 0;
  friend bool operator==(const GridPlace&, const GridPlace&) = default;
};

/// Processes are numbered replica by replica, in it stage by stage.
inline GridPlace place_in(const Grid& grid, int process) {
  return {process / grid.parts(), process % grid.parts() / grid.tensor, process % grid.tensor};
}
inline int process_at(const Grid& grid, const GridPlace& place) {
  return place.replica * grid.parts() + place.stage * grid.tensor + place.tensor;
}

}  // namespace distbelief
