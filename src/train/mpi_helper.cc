#include "train/mpi_helper.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

extern "C" {  // which glibc 2.36 has forgotten
#include <sys/pidfd.h>
}

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "transport/socket/file_descriptor.h"

namespace distbelief {
namespace {

constexpr std::string_view kHelper = "orted";
constexpr unsigned kPatienceMilliseconds = 6000;  // probes take five seconds

/// Of a connection to another host.
void bound_patience(int socket) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  const bool is_tcp = ::getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
  sockaddr_in peer{};
  socklen_t length = sizeof(peer);
  const bool connected = is_tcp && ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
  const bool is_here = peer.sin_family == AF_INET && ntohl(peer.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  if (connected && !is_here) {
    (void)::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kPatienceMilliseconds, sizeof(kPatienceMilliseconds));
  }
}

}  // namespace

void bound_patience_of_mpi_helper() {
  const pid_t parent = ::getppid();
  const std::filesystem::path about = "/proc/" + std::to_string(parent);
  std::string name;
  std::getline(std::ifstream(about / "comm") >> std::ws, name);
  const FileDescriptor process(::pidfd_open(parent, 0));
  if (name != kHelper || process.get() < 0 || ::getppid() != parent) {
    return;
  }
  std::error_code ignored;
  for (std::filesystem::directory_iterator open(about / "fd", ignored), end; !ignored && open != end;
       open.increment(ignored)) {
    const std::string number = open->path().filename();
    int theirs = -1;
    std::from_chars(number.data(), number.data() + number.size(), theirs);
    const FileDescriptor ours(::pidfd_getfd(process.get(), theirs, 0));
    if (ours.get() >= 0) {
      bound_patience(ours.get());
    }
  }
}

}  // namespace distbelief
