#pragma once

namespace distbelief {

/// From now on SIGINT and SIGTERM are remembered and do nothing else.
void catch_stop_signals();

/// The last of them that came; 0: none.
int stop_signal();
/// How many came.
int stop_signals();
/// Whether this one of them has come.
bool stop_signal_came(int signal);

}  // namespace distbelief
