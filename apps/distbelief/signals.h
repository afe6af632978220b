#pragma once

namespace distbelief {

/// From now on SIGINT and SIGTERM are remembered and do nothing else.
void catch_stop_signals();

/// The last of them that came; 0: none.
int stop_signal();
/// How many came.
int stop_signals();

}  // namespace distbelief
