#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/fabric.h"
#include "transport/frame.h"
#include "transport/socket/early_memory.h"
#include "transport/socket/stream.h"

namespace distbelief {

/// What the frames of the data plane are.
enum class DataFrame : std::uint16_t { hello = 1, welcome = 2, refusal = 3, data = 4 };

/// One connection of a SocketFabric: the transfers that are open with one peer, and the bytes between. Never waits; who
/// owns it says when the socket may have something. One thread.
///
/// A message that is expected is read straight into its receiver's memory. One that nobody has posted yet is kept, and
/// what is kept has a bound: beyond it the link stops reading, and the peer has to wait.
class SocketLink {
 public:
  /// `checksums`: payloads that go out are followed by their CRC32C; what comes in says so itself. `memory`, which it
  /// may share with other links of its thread, outlives it.
  SocketLink(Rank peer, std::unique_ptr<Stream> stream, bool checksums, std::size_t most_early, EarlyMemory& memory);

  /// Takes a posted transfer, and begins to write what is to be sent.
  void post(Transfer& transfer);
  /// Lets go of a transfer that is not finished, and of its memory.
  void cancel(Transfer& transfer);
  /// Reads and writes until the socket has no more to give, or for a few megabytes, or until a message that was waited
  /// for is followed by one that nobody has posted yet. True when there may be more to do at once.
  bool move_bytes();

  /// There are transfers that move_bytes() could bring on.
  bool busy() const { return !lost_ && (!sends_.empty() || !receives_.empty() || message_.into != nullptr); }
  /// Worth calling move_bytes() again when the socket can be read.
  bool wants_read() const { return !lost_ && (!stalled_ || tls_wants_read_); }
  bool wants_write() const { return !lost_ && (!sends_.empty() || tls_wants_write_); }

  /// Ends all that is open; the first reason stays. Messages that came whole before the peer closed the connection can
  /// still be received, unless `drop_early`.
  void lose(const std::string& reason, bool drop_early);
  bool lost() const { return lost_.has_value(); }
  /// See Fabric::end_epoch().
  void end_epoch(std::uint32_t epoch, const std::string& reason);
  int fd() const { return stream_->fd(); }
  /// After lose(), once nobody watches fd() any more.
  void close() { stream_.reset(); }

 private:
  struct Outgoing {
    Transfer* transfer = nullptr;  // none: given up, the rest is in kept
    FrameHeaderBytes head;
    const std::byte* payload = nullptr;
    std::size_t bytes = 0;
    std::size_t written = 0;  // of head, payload and trailer together
    bool begun = false;       // a write was tried: TLS may have taken bytes of it, so that it has to be written now
    std::size_t summed = 0;   // bytes of the payload that are in crc
    std::uint32_t crc = 0;
    std::vector<std::byte> kept = {};  // the payload from kept_from on
    std::size_t kept_from = 0;
  };

  struct Early {
    EarlyMemory::Piece data;
    std::size_t bytes = 0;
    bool whole = false;
  };

  /// What is being read behind a header. At most one of into and early is set; neither: thrown away.
  struct Incoming {
    enum class Stage : std::uint8_t { head, place, payload, trailer };
    Stage stage = Stage::head;
    FrameHeaderBytes head{};
    FrameHeader header;
    std::size_t filled = 0;  // of head, payload or trailer
    Transfer* into = nullptr;
    Early* early = nullptr;
    std::uint32_t crc = 0;
    std::array<std::byte, kFrameTrailerBytes> trailer{};
  };

  using Key = std::uint64_t;
  static Key key_of(std::uint32_t epoch, std::uint32_t sequence) { return (Key{epoch} << 32) | sequence; }
  static Key key_of(const Tag& tag) { return key_of(tag.epoch, tag.sequence); }
  static std::uint32_t epoch_of(Key key) { return static_cast<std::uint32_t>(key >> 32); }

  void post_receive(Transfer& transfer);
  bool write_some();
  bool read_some();
  bool use_staged();
  bool place_message();
  bool end_message();
  void payload_came(std::size_t bytes);
  std::byte* payload_target(std::size_t& room);
  void finish(Transfer& transfer, Outcome::Kind kind, const std::string& reason);

  const Rank peer_;
  std::unique_ptr<Stream> stream_;
  const bool checksums_;
  const std::size_t most_early_;
  EarlyMemory& early_memory_;
  std::optional<std::string> lost_;
  // In this call of read_some(): who waited for a message may now post the one that follows, into memory of its own.
  bool finished_some_ = false;
  bool stalled_ = false;  // the message at hand is too long to be kept, and nobody has posted it
  bool tls_wants_read_ = false;
  bool tls_wants_write_ = false;

  std::deque<Outgoing> sends_;
  std::unordered_map<Key, Transfer*> receives_;  // posted, and nothing has come yet
  std::unordered_map<Key, Early> early_;         // came before they were posted
  std::size_t early_bytes_ = 0;
  std::unordered_set<Key> unwanted_;            // given up before they came
  std::map<std::uint32_t, std::string> ended_;  // epochs, with the reason
  Incoming message_;
  std::vector<std::byte> staging_;  // bytes that were read along with others: short messages, the next header
  std::size_t staged_from_ = 0;
  std::size_t staged_to_ = 0;
  std::vector<std::byte> thrown_away_;
};

}  // namespace distbelief
