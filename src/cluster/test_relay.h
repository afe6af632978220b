#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "transport/address.h"

namespace distbelief {

/// For tests: stands between members and their coordinator on loopback, so that connections can be cut (both ends see
/// them close) and the way be blocked (nothing passes, nothing closes; what was sent passes later).
class TestRelay {
 public:
  explicit TestRelay(const Address& target) : target_port_(target.port) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name = loopback(0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::listen(listener_, 256), 0);
    socklen_t size = sizeof name;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &size);
    port_ = ntohs(name.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~TestRelay() {
    thread_.request_stop();
    thread_.join();
    close_pairs();
    ::close(listener_);
  }
  TestRelay(const TestRelay&) = delete;
  TestRelay& operator=(const TestRelay&) = delete;

  Address address() const { return Address::tcp("127.0.0.1", port_); }
  void cut() { cut_ = true; }
  void block(bool blocked) { blocked_ = blocked; }
  /// Connections so far.
  int accepted() const { return accepted_; }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(port);
    return name;
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (cut_.exchange(false)) {
        close_pairs();
      }
      std::vector<pollfd> waits;
      if (!blocked_) {
        waits.push_back({listener_, POLLIN, 0});
        for (const auto& [from, to] : peer_of_) {
          waits.push_back({from, POLLIN, 0});
        }
      }
      ::poll(waits.data(), waits.size(), 2);
      for (const pollfd& wait : waits) {
        if (wait.revents == 0) {
          continue;
        }
        if (wait.fd == listener_) {
          accept_one();
        } else if (peer_of_.contains(wait.fd)) {
          forward(wait.fd);
        }
      }
    }
  }

  void accept_one() {
    const int near = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in name = loopback(target_port_);
    if (near < 0 || ::connect(far, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
      ::close(far);
      ::close(near);
      return;
    }
    const int on = 1;
    ::setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peer_of_[near] = far;
    peer_of_[far] = near;
    ++accepted_;
  }

  void forward(int from) {
    char bytes[65536];
    const ssize_t got = ::recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    const int to = peer_of_[from];
    if (got <= 0) {
      peer_of_.erase(from);
      peer_of_.erase(to);
      ::close(from);
      ::close(to);
      return;
    }
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t now = ::send(to, bytes + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
      if (now <= 0) {
        return;  // the next read says that it is closed
      }
      sent += now;
    }
  }

  void close_pairs() {
    for (const auto& [from, to] : peer_of_) {
      ::close(from);
    }
    peer_of_.clear();
  }

  const std::uint16_t target_port_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  std::map<int, int> peer_of_;  // the thread's
  std::atomic<bool> cut_ = false;
  std::atomic<bool> blocked_ = false;
  std::atomic<int> accepted_ = 0;
  std::jthread thread_;
};

}  // namespace distbelief
