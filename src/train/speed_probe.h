#pragma once

namespace distbelief {

/// How fast this process computes with so many threads: operations a second of matrix products of some milliseconds
/// each, in the best of a few tenths of a second. Those who share its cores for good make it slower, others for a
/// moment do not. Changes the thread count of the calling thread.
double probe_speed(int threads);

}  // namespace distbelief
