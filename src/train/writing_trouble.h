#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace distbelief {

/// Something that a run writes as it goes, and that it can do without for a while: a full disk is no reason to stop
/// training. People hear when it begins to fail and when that is over, not each time. One thread.
class WritingTrouble {
 public:
  /// What people are told, or nothing when they know already.
  std::string failed(std::string_view what, std::string_view why, std::string_view meanwhile) {
    ++count_;
    if (failing_) {
      return {};
    }
    failing_ = true;
    return std::string(what).append(": ").append(why).append("; training goes on, ").append(meanwhile);
  }
  std::string succeeded(std::string_view what) {
    if (!failing_) {
      return {};
    }
    failing_ = false;
    return std::string(what).append(" written again");
  }
  /// How often it failed.
  std::int64_t count() const { return count_; }

 private:
  bool failing_ = false;
  std::int64_t count_ = 0;
};

}  // namespace distbelief
