#pragma once

namespace distbelief {

/// How fast this process computes now with so many threads: operations a second of matrix products of some milliseconds
/// each, over a third of a second, in which everybody who shares the cores has had a turn. What others do on the
/// machine meanwhile counts, as it will in training. Changes the thread count of the calling thread.
double probe_speed(int threads);

}  // namespace distbelief
