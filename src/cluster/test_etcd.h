#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "cluster/child_process.h"
#include "cluster/etcd_store.h"
#include "cluster/test_folder.h"
#include "cluster/test_job.h"
#include "transport/socket/socket_listener.h"

namespace distbelief {

/// For tests: an etcd of one server on loopback, with its data in a folder that goes when the test ends.
class TestEtcd {
 public:
  /// `tls`: the server's certificate and authority, and that clients need one too.
  explicit TestEtcd(const std::optional<TlsOptions>& tls = std::nullopt) : tls_(tls) {
    for (int tries = 0; tries < 20 && !serves_; ++tries) {  // another process may take a port that was free just now
      {
        const SocketListener client(Address::tcp("127.0.0.1", 0));
        const SocketListener peer(Address::tcp("127.0.0.1", 0));
        port_ = client.address().port;
        peer_port_ = peer.address().port;
      }
      start();
    }
    EXPECT_TRUE(serves_) << last_lines(log(), 20);
  }

  StoreUrl url(const std::string& name) const {
    return StoreUrl::parse(fmt::format("{}://127.0.0.1:{}/{}", tls_ ? "etcds" : "etcd", port_, name));
  }
  void signal(int number) { process_->signal(number); }
  /// As if its machine had died; what it acknowledged stays.
  void kill() { process_.reset(); }
  void start_again() {
    serves_ = false;
    start();
    EXPECT_TRUE(serves_) << last_lines(log(), 20);
  }

 private:
  std::filesystem::path log() const { return folder_.path() / "log"; }

  void start() {
    const std::string scheme = tls_ ? "https" : "http";
    const std::string client = fmt::format("{}://127.0.0.1:{}", scheme, port_);
    const std::string peer = fmt::format("http://127.0.0.1:{}", peer_port_);
    ProcessSpec spec = {
        .name = "etcd",
        .argv = {"etcd", "--name", "t", "--data-dir", (folder_.path() / "data").string(), "--listen-client-urls",
                 client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls",
                 peer, "--initial-cluster", "t=" + peer, "--heartbeat-interval", "20", "--election-timeout", "200"},
        .environment = {"PATH=/usr/bin:/bin"},
        .log = log()};
    if (tls_) {
      spec.argv.insert(spec.argv.end(), {"--cert-file", tls_->cert, "--key-file", tls_->key, "--trusted-ca-file",
                                         tls_->ca, "--client-cert-auth"});
    }
    process_ = std::make_unique<ChildProcess>(spec);
    EtcdClient asks(url("test"), tls_);
    const Clock::time_point deadline = soon();
    while (!serves_ && !process_->reap() && Clock::now() < deadline) {
      serves_ = asks.read({"ready"}, Clock::now() + std::chrono::seconds(1)).reached;
      std::this_thread::sleep_for(std::chrono::milliseconds(serves_ ? 0 : 5));
    }
  }

  const std::optional<TlsOptions> tls_;
  const ClusterTestFolder folder_;
  std::uint16_t port_ = 0;
  std::uint16_t peer_port_ = 0;
  bool serves_ = false;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace distbelief
