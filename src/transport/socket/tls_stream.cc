#include "transport/socket/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "transport/socket/endpoint.h"

namespace distbelief {

struct FreeSsl {
  void operator()(SSL* ssl) const { ::SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
};

namespace {

constexpr std::size_t kRecordBytes = 16 * 1024;  // the most that one record of TLS holds

/// The oldest of the library's complaints on this thread, and forgets them all.
std::string library_reason() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (error == 0) {
    return "unknown reason";
  }
  if (ERR_SYSTEM_ERROR(error)) {
    return system_reason(static_cast<int>(ERR_GET_REASON(error)));
  }
  const char* text = ERR_reason_error_string(error);
  return text != nullptr ? text : "unknown reason";
}

/// OpenSSL's own socket BIO writes with write(), and a peer that is gone would then end this process by a signal.
const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* method = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    check(method != nullptr, "OpenSSL has memory for a BIO");
    ::BIO_meth_set_write(method, [](BIO* bio, const char* data, int size) {
      ::BIO_clear_retry_flags(bio);
      const auto count = ::send(static_cast<int>(reinterpret_cast<std::intptr_t>(::BIO_get_data(bio))), data,
                                static_cast<std::size_t>(size), MSG_NOSIGNAL);
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        ::BIO_set_retry_write(bio);
      }
      return static_cast<int>(count);
    });
    ::BIO_meth_set_read(method, [](BIO* bio, char* data, int size) {
      ::BIO_clear_retry_flags(bio);
      const auto count = ::recv(static_cast<int>(reinterpret_cast<std::intptr_t>(::BIO_get_data(bio))), data,
                                static_cast<std::size_t>(size), 0);
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        ::BIO_set_retry_read(bio);
      }
      return static_cast<int>(count);
    });
    ::BIO_meth_set_ctrl(method,
                        [](BIO*, int command, long, void*) -> long { return command == BIO_CTRL_FLUSH ? 1 : 0; });
    return method;
  }();
  return kMethod;
}

/// A write that would block is repeated by the caller with the same bytes at its front, as OpenSSL demands.
class TlsStream : public Stream {
 public:
  TlsStream(FileDescriptor fd, SSL* ssl) : Stream(std::move(fd)), ssl_(ssl) {
    BIO* bio = ::BIO_new(socket_method());
    check(bio != nullptr, "OpenSSL has memory for a BIO");
    ::BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(this->fd())));
    ::BIO_set_init(bio, 1);
    ::SSL_set_bio(ssl, bio, bio);  // owns it
  }

  Moved handshake() override {
    ::ERR_clear_error();
    const int result = ::SSL_do_handshake(ssl_.get());
    return result == 1 ? Moved{} : ended(result);
  }

  Moved read(std::span<const iovec> into) override {
    std::size_t total = 0;
    for (const iovec& part : into) {
      for (std::size_t filled = 0; filled < part.iov_len;) {
        ::ERR_clear_error();
        std::size_t count = 0;
        const int result =
            ::SSL_read_ex(ssl_.get(), static_cast<char*>(part.iov_base) + filled, part.iov_len - filled, &count);
        if (result != 1) {
          // A reason to end comes again with the next read.
          return total > 0 ? Moved{Moved::State::moved, total} : ended(result);
        }
        filled += count;
        total += count;
      }
    }
    return {Moved::State::moved, total};
  }

  Moved write(std::span<const iovec> from) override {
    std::size_t total = 0;
    std::size_t part = 0;
    std::size_t offset = 0;
    while (part < from.size()) {
      // Short parts, as a header and its message, share a record.
      const char* data = static_cast<const char*>(from[part].iov_base) + offset;
      std::size_t size = std::min(from[part].iov_len - offset, kRecordBytes);
      if (size < kRecordBytes && part + 1 < from.size()) {
        size = 0;
        for (std::size_t i = part, skip = offset; i < from.size() && size < kRecordBytes; ++i, skip = 0) {
          const std::size_t count = std::min(from[i].iov_len - skip, kRecordBytes - size);
          std::memcpy(record_.data() + size, static_cast<const char*>(from[i].iov_base) + skip, count);
          size += count;
        }
        data = record_.data();
      }
      if (size == 0) {
        break;
      }
      ::ERR_clear_error();
      std::size_t count = 0;
      const int result = ::SSL_write_ex(ssl_.get(), data, size, &count);
      if (result != 1) {
        return total > 0 ? Moved{Moved::State::moved, total} : ended(result);
      }
      total += count;
      for (offset += count; part < from.size() && offset >= from[part].iov_len; ++part) {
        offset -= from[part].iov_len;
      }
    }
    return {Moved::State::moved, total};
  }

  void end_writing() override {
    ::ERR_clear_error();
    if (::SSL_is_init_finished(ssl_.get()) != 0) {
      ::SSL_shutdown(ssl_.get());
    }
    ::ERR_clear_error();
    ::shutdown(fd(), SHUT_WR);
  }

 private:
  Moved ended(int result) {
    const int system_error = errno;
    switch (::SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return {Moved::State::wants_read};
      case SSL_ERROR_WANT_WRITE:
        return {Moved::State::wants_write};
      case SSL_ERROR_ZERO_RETURN:
        return {Moved::State::closed, 0, "closed the connection"};
      case SSL_ERROR_SYSCALL:
        ::ERR_clear_error();
        return {Moved::State::closed, 0,
                system_error == 0 || system_error == EPIPE ? "closed the connection" : system_reason(system_error)};
      default:
        break;
    }
    if (const long verified = ::SSL_get_verify_result(ssl_.get()); verified != X509_V_OK) {
      ::ERR_clear_error();
      return {Moved::State::closed, 0,
              fmt::format("has a certificate that is not accepted: {}", ::X509_verify_cert_error_string(verified))};
    }
    return {Moved::State::closed, 0, "broke TLS: " + library_reason()};
  }

  const std::unique_ptr<SSL, FreeSsl> ssl_;
  std::array<char, kRecordBytes> record_{};
};

}  // namespace

struct StreamMaker::Context {
  explicit Context(const TlsOptions& options) : owned(::SSL_CTX_new(::TLS_method())) {
    SSL_CTX* ctx = owned.get();
    check(ctx != nullptr, "OpenSSL has memory for a context");
    ::ERR_clear_error();
    ::SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
    ::SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    ::SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF);  // frames have lengths: a cut one is noticed
    ::SSL_CTX_set_num_tickets(ctx, 0);
    ::SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    // One certificate serves both to dial and to accept, whatever its extended usage says.
    ::SSL_CTX_set_purpose(ctx, X509_PURPOSE_ANY);
    ::SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // Without this a key with a passphrase would have the library ask at the terminal.
    ::SSL_CTX_set_default_passwd_cb(ctx, [](char*, int, int, void*) { return 0; });
    use("certificate", options.cert, ::SSL_CTX_use_certificate_chain_file(ctx, options.cert.c_str()));
    use("private key", options.key, ::SSL_CTX_use_PrivateKey_file(ctx, options.key.c_str(), SSL_FILETYPE_PEM));
    use("private key", options.key, ::SSL_CTX_check_private_key(ctx));
    use("authority", options.ca, ::SSL_CTX_load_verify_file(ctx, options.ca.c_str()));
  }

  static void use(const char* what, const std::filesystem::path& file, int result) {
    if (result != 1) {
      throw InputError(fmt::format("TLS {} '{}': {}", what, file.string(), library_reason()));
    }
  }

  std::unique_ptr<SSL_CTX, FreeSsl> owned;
};

void check_tls(const TlsOptions& options) {
  const StreamMaker maker(options);
  maker.check_own_certificate(options);
}

void StreamMaker::check_own_certificate(const TlsOptions& options) const {
  SSL_CTX* ctx = context_->owned.get();
  const std::unique_ptr<X509_STORE_CTX, decltype(&::X509_STORE_CTX_free)> check_of(::X509_STORE_CTX_new(),
                                                                                   ::X509_STORE_CTX_free);
  check(check_of != nullptr, "OpenSSL has memory for a check");
  STACK_OF(X509)* chain = nullptr;
  ::SSL_CTX_get0_chain_certs(ctx, &chain);
  ::X509_STORE_CTX_init(check_of.get(), ::SSL_CTX_get_cert_store(ctx), ::SSL_CTX_get0_certificate(ctx), chain);
  ::X509_STORE_CTX_set_purpose(check_of.get(), X509_PURPOSE_ANY);
  if (::X509_verify_cert(check_of.get()) != 1) {
    const int error = ::X509_STORE_CTX_get_error(check_of.get());
    ::ERR_clear_error();
    throw InputError(fmt::format("TLS certificate '{}' is not accepted by the authority '{}': {}",
                                 options.cert.string(), options.ca.string(), ::X509_verify_cert_error_string(error)));
  }
}

StreamMaker::StreamMaker(const std::optional<TlsOptions>& tls)
    : context_(tls ? std::make_unique<Context>(*tls) : nullptr) {}
StreamMaker::~StreamMaker() = default;

std::unique_ptr<Stream> StreamMaker::make(FileDescriptor fd, Role role) const {
  if (context_ == nullptr) {
    return make_plain_stream(std::move(fd));
  }
  SSL* ssl = ::SSL_new(context_->owned.get());
  check(ssl != nullptr, "OpenSSL has memory for a connection");
  role == Role::dials ? ::SSL_set_connect_state(ssl) : ::SSL_set_accept_state(ssl);
  return std::make_unique<TlsStream>(std::move(fd), ssl);
}

}  // namespace distbelief
