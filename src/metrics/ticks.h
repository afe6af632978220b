#pragma once

#include <string>
#include <vector>

namespace distbelief {

/// An axis that begins and ends at round numbers: ticks are 1, 2 or 5 times a power of ten apart.
struct Axis {
  double low = 0;
  double high = 1;
  std::vector<double> ticks;
  int decimals = 0;  ///< that tick labels need
  bool log = false;

  /// Where a value lies: 0 at low, 1 at high.
  double place(double value) const;
};

/// The axis for values from low to high with about `count` ticks. When `exact` it ends where the values do, or nearly,
/// and ticks are only those inside. Any finite input gives a usable axis.
Axis nice_axis(double low, double high, int count, bool exact = false);

/// A logarithmic axis that ends where the values do, all above 0, with ticks at 1, 2 and 5 times powers of ten, or at
/// those alone where that is enough.
Axis log_axis(double low, double high);

/// A tick's label: "0.25", "45k".
std::string tick_label(const Axis& axis, double tick);

}  // namespace distbelief
