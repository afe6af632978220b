#pragma once

namespace distbelief {

/// How fast this process computes now with so many threads: operations a second of a matrix product, the median of a
/// few of some milliseconds each. What others do on the machine meanwhile counts, as it will in training. Changes the
/// thread count of the calling thread.
double probe_speed(int threads);

}  // namespace distbelief
