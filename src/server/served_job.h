#pragma once

#include <memory>
#include <vector>

#include "server/block_map.h"
#include "server/link_thread.h"
#include "server/placement.h"
#include "server/server_client.h"
#include "server/server_port.h"
#include "transport/local/local_fabric.h"

namespace distbelief {

/// For tests: servers and clients on threads of this process, with links between them. Ranks are the servers, then the
/// clients. Clients that are idle are not waited for with what is gathered.
class ServedJob {
 public:
  /// What clients that ask for work are given, if servers keep vectors; and who hears what they say.
  using HandOut = std::function<std::optional<Work>(const RequestHead&)>;
  using Heard = std::function<void(const RequestHead&, const ReplyHead&, std::string_view)>;

  ServedJob(const ParameterTable& table, const UpdateRule& rule, std::span<const float> values, int servers,
            int clients, const UpdateOptions& options, std::optional<std::uint64_t> max_staleness = {},
            const HandOut& hand_out = {}, const Heard& heard = {})
      : map_(table, servers), fabrics_(make_local_fabrics(servers + clients)) {
    std::vector<std::uint64_t> ids;
    std::vector<ServerPort::Client> client_ranks;
    for (int i = 0; i < servers; ++i) {
      ids.push_back(static_cast<std::uint64_t>(i));
    }
    for (int i = 0; i < clients; ++i) {
      client_ranks.push_back({.rank = Rank{servers + i}, .role = ClientRole::leader});
    }
    const Placement placement(map_, ids);
    std::vector<ServerClient::Server> places;
    for (int i = 0; i < servers; ++i) {
      auto node = std::make_unique<ServerNode>();
      node->server =
          std::make_unique<ParameterServer>(table, map_, placement.blocks_of(i), rule, values,
                                            ParameterServer::Options{.update =
                                                                         [options](std::uint64_t, int idle) {
                                                                           UpdateOptions own = options;
                                                                           own.gather = std::max(1, own.gather - idle);
                                                                           return own;
                                                                         },
                                                                     .max_staleness = max_staleness,
                                                                     .keeps_vectors = hand_out != nullptr});
      node->ordered =
          std::make_unique<OrderedServer>(*node->server, OrderedServer::Options{.heard = i == 0 ? heard : nullptr});
      node->port = std::make_unique<ServerPort>(
          *fabrics_[static_cast<std::size_t>(i)], *node->ordered, client_ranks,
          ServerPort::Options{
              .view = 1, .threads = 2, .wake = [node = node.get()] { node->link.wake(); }, .work = hand_out});
      node->link.start(
          *fabrics_[static_cast<std::size_t>(i)], [port = node->port.get()] { return port->advance(); },
          [port = node->port.get()] { return port->in_a_message(); });
      places.push_back({.rank = Rank{i}, .blocks = placement.blocks_of(i)});
      servers_.push_back(std::move(node));
    }
    for (int i = 0; i < clients; ++i) {
      auto node = std::make_unique<ClientNode>();
      node->client =
          std::make_unique<ServerClient>(*fabrics_[static_cast<std::size_t>(servers + i)], map_, places,
                                         ServerClient::Options{.view = 1,
                                                               .incarnation = static_cast<std::uint64_t>(i + 1),
                                                               .role = ClientRole::leader,
                                                               .wake = [node = node.get()] { node->link.wake(); }});
      node->link.start(
          *fabrics_[static_cast<std::size_t>(servers + i)], [client = node->client.get()] { return client->advance(); },
          [client = node->client.get()] { return client->in_a_message(); });
      clients_.push_back(std::move(node));
    }
  }

  ParameterServer& server(int i) { return *servers_[static_cast<std::size_t>(i)]->server; }
  ServerPort& port(int i) { return *servers_[static_cast<std::size_t>(i)]->port; }
  ServerClient& client(int i) { return *clients_[static_cast<std::size_t>(i)]->client; }
  const BlockMap& map() const { return map_; }
  /// As if its process had died.
  void kill_client(int i) {
    clients_[static_cast<std::size_t>(i)].reset();
    fabrics_[servers_.size() + static_cast<std::size_t>(i)].reset();
  }

 private:
  struct ServerNode {
    LinkThread link;
    std::unique_ptr<ParameterServer> server;
    std::unique_ptr<OrderedServer> ordered;
    std::unique_ptr<ServerPort> port;
    ~ServerNode() { link.stop(); }
  };
  struct ClientNode {
    LinkThread link;
    std::unique_ptr<ServerClient> client;
    ~ClientNode() { link.stop(); }
  };

  const BlockMap map_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<ServerNode>> servers_;
  std::vector<std::unique_ptr<ClientNode>> clients_;
};

}  // namespace distbelief
