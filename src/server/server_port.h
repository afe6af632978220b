#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "server/ordered_server.h"
#include "server/wire.h"
#include "transport/fabric.h"

namespace distbelief {

/// What the clients of a server say to it, over a fabric. One thread moves bytes (advance()), others answer, so that a
/// push is received while another is applied; but the first answers itself where a server is so small that this is
/// quick. A client that is lost, or that says what is no request, is not listened to any more; the others do not
/// notice.
class ServerPort {
 public:
  /// Of a server: to hand a request over to another thread and back would take longer than to answer it.
  static constexpr std::size_t kFewFloats = 128 * 1024;

  struct Options {
    std::uint32_t view = 0;
    int threads = 1;                                      ///< that answer
    Clock::duration patience = std::chrono::minutes(10);  ///< of a client in this process
    std::function<void()> wake = {};  ///< called when there is something to send: wakes the thread of advance()
    std::function<void()> thread_begins = {};  ///< called first on each thread that answers
    std::size_t few_floats = kFewFloats;       ///< up to so many the server is small
    /// What a client that asks for work is to do; nothing: there is nothing, until server_changed() says that there may
    /// be. Thread-safe.
    std::function<std::optional<Work>(const RequestHead& request)> work = {};
  };
  struct Client {
    Rank rank = {};
    ClientRole role = ClientRole::worker;
  };
  /// `fabric` and `server` are borrowed. For the thread that uses the fabric, or before it begins.
  ServerPort(Fabric& fabric, OrderedServer& server, const std::vector<Client>& clients, Options options);
  ~ServerPort();
  ServerPort(const ServerPort&) = delete;
  ServerPort& operator=(const ServerPort&) = delete;

  /// Somebody who came later. For the thread that uses the fabric.
  void add_client(const Client& client);

  // Where blocks move between servers the port stays, so that whoever asks is always answered. For one thread, which is
  // not the one that uses the fabric.

  /// From now on whoever asks is told that the blocks have moved. When it returns nothing is being answered; replies
  /// may still have to wait for the backup.
  void close();
  void open();
  bool is_open() const { return open_; }
  /// No client in this process waits for something here.
  bool is_quiet();
  /// Of a closed port, on the thread that uses the fabric: the server is gone, or is another of the same blocks.
  void detach() { ordered_ = nullptr; }
  void attach(OrderedServer& server) { ordered_ = &server; }
  /// Moves on what can move on; true when something did. For the thread that uses the fabric.
  bool advance();
  /// For the same thread: the body of a request or a reply is on its way.
  bool in_a_message() const;
  /// The same for a client in this process, which waits for what it asks for, and until the backup has it too, unless
  /// that is in vain: then it is told that the blocks have moved. Thread-safe.
  ReplyHead answer_here(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out) {
    return begin_here(request, in, out)();
  }
  /// The same in two parts, for who asks several ports at once: what is returned waits until the backup has it, and is
  /// to be called once. Borrows all until then.
  [[nodiscard]] std::function<ReplyHead()> begin_here(const RequestHead& request, std::span<const std::byte> in,
                                                      std::span<std::byte> out);
  /// The server's parameters or its rules were changed by other means than requests: who waits may be answered.
  void server_changed();
  /// From now on nobody waits for newer parameters, nor in this process for the backup: whom they would come from may
  /// be gone.
  void let_all_go();

 private:
  class Served;

  void answer_all(const std::stop_token& stop);
  /// Nothing: it has to wait.
  std::optional<ReplyHead> try_answer(const RequestHead& request, std::span<const std::byte> in,
                                      std::span<std::byte> out, std::uint64_t& position);
  /// Until the backup has it, unless that is in vain.
  ReplyHead wait_here(const ReplyHead& answered, std::uint64_t position, Clock::time_point deadline);
  ReplyHead answer_now(const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out,
                       std::uint64_t& position);
  std::optional<ReplyHead> try_answer_open(const RequestHead& request, std::span<const std::byte> in,
                                           std::span<std::byte> out, std::uint64_t& position);
  void hand_over(Served& served);
  bool durable(std::uint64_t position) const {
    const OrderedServer* server = ordered_;
    return server == nullptr || server->durable(position);
  }
  /// May be called while the port is open, or by the thread that uses the fabric while there is a server.
  ParameterServer& server() const { return ordered_.load()->server(); }

  Fabric& fabric_;
  std::atomic<OrderedServer*> ordered_;
  const std::size_t blocks_;
  const std::size_t floats_;
  const Options options_;
  std::vector<std::unique_ptr<Served>> served_;

  std::mutex mutex_;
  std::condition_variable_any changed_;       // for threads that answer
  std::condition_variable changed_for_here_;  // for clients of this process
  std::deque<Served*> waiting_;               // guarded by mutex_: requests to be answered
  std::vector<Served*> parked_;               // guarded by mutex_: those that can't be yet
  int waiting_here_ = 0;                      // guarded by mutex_: clients of this process, likewise
  std::uint64_t changes_ = 0;                 // guarded by mutex_: of the server, that may end a wait
  int inside_ = 0;                            // guarded by mutex_: requests that the server is being asked
  std::condition_variable left_;              // nobody is inside
  std::atomic<bool> open_ = true;             // changes while mutex_ is held
  std::atomic<bool> nobody_waits_ = false;
  std::atomic<std::uint64_t> pushed_bytes_ = 0;
  std::atomic<std::uint64_t> fetched_bytes_ = 0;
  std::vector<std::jthread> threads_;  // last: they stop before the rest goes
};

}  // namespace distbelief
