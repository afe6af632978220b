#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/test_deadline.h"
#include "cluster/coordinator.h"
#include "cluster/member.h"
#include "cluster/test_folder.h"

namespace distbelief {

/// For tests: collects a member's events and waits for one of a kind.
class EventRecorder {
 public:
  void add(const MemberEvent& event) {
    const std::scoped_lock lock(mutex_);
    events_.push_back(event);
    changed_.notify_all();
  }
  /// The first event of the kind that `matches`, or a failure of the test.
  template <typename T, typename Matches>
  T wait_for(Matches&& matches) {
    std::unique_lock lock(mutex_);
    std::optional<T> found;
    const bool came = changed_.wait_until(lock, soon(), [&] {
      for (const MemberEvent& event : events_) {
        if (const T* content = std::get_if<T>(&event); content != nullptr && matches(*content)) {
          found = *content;
          return true;
        }
      }
      return false;
    });
    EXPECT_TRUE(came) << "an event that did not come";
    return found.value_or(T());
  }
  template <typename T>
  T wait_for() {
    return wait_for<T>([](const T&) { return true; });
  }
  template <typename T>
  std::vector<T> all() {
    const std::scoped_lock lock(mutex_);
    std::vector<T> found;
    for (const MemberEvent& event : events_) {
      if (const T* content = std::get_if<T>(&event)) {
        found.push_back(*content);
      }
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<MemberEvent> events_;  // guarded by mutex_
};

/// For tests: a coordinator on loopback and requests that it accepts. Unless a test says otherwise nobody is given up
/// for being silent: that a machine is busy is no failure.
class TestJob {
 public:
  static constexpr std::chrono::minutes kPatience{5};

  explicit TestJob(JobRules rules, Address listen = Address::tcp("127.0.0.1", 0),
                   std::chrono::milliseconds stranger_limit = std::chrono::seconds(5)) {
    rules.version = "1.0";
    rules.configuration = "abc";
    if (rules.silence_limit == JobRules().silence_limit) {
      rules.silence_limit = kPatience;
    }
    options.rules = rules;
    options.listen = std::move(listen);
    options.run_folder = folder.path();
    options.stranger_limit = stranger_limit;
    coordinator = std::make_unique<Coordinator>(options);
  }

  /// As if its process was killed.
  void kill_coordinator() { coordinator.reset(); }
  void start_coordinator_again() {
    options.comes_back = true;
    options.rules.configuration = "as the folder has it now";
    coordinator = std::make_unique<Coordinator>(options);
  }

  JoinRequest request(Role role = Role::worker, EventRecorder* events = nullptr) const {
    JoinRequest request;
    request.version = "1.0";
    request.configuration = "abc";
    request.token = coordinator->token();
    request.host = "alpha";
    request.pid = 4711;
    request.role = role;
    request.silence_limit = kPatience;
    request.coordinator_limit = kPatience;
    if (events != nullptr) {
      request.on_event = [events](const MemberEvent& event) { events->add(event); };
    }
    return request;
  }

  std::unique_ptr<Member> join(const JoinRequest& request, std::optional<Address> by = std::nullopt) const {
    auto joined = Member::join(by.value_or(coordinator->address()), request, soon());
    EXPECT_NE(joined.member, nullptr) << joined.reason;
    return std::move(joined.member);
  }
  std::unique_ptr<Member> join(Role role = Role::worker, EventRecorder* events = nullptr) const {
    return join(request(role, events));
  }

  ClusterTestFolder folder;
  CoordinatorOptions options;
  std::unique_ptr<Coordinator> coordinator;
};

}  // namespace distbelief
