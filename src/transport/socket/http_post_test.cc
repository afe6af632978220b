#include "transport/socket/http_post.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "transport/socket/endpoint.h"
#include "transport/socket/socket_listener.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

Clock::time_point much_later() { return Clock::now() + std::chrono::seconds(60); }

/// Takes one connection, reads a request, answers with these bytes, and closes, or waits until it is closed.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer, bool closes = true)
      : thread_([this, answer = std::move(answer), closes] {
          ASSERT_TRUE(wait_for_events(listener_.fd(), POLLIN, much_later()));
          const FileDescriptor fd = listener_.accept().fd;
          char bytes[4096];
          while (request_.find("\r\n\r\n{}") == std::string::npos) {
            ASSERT_TRUE(wait_for_events(fd.get(), POLLIN, much_later()));
            const ssize_t count = ::read(fd.get(), bytes, sizeof bytes);
            ASSERT_GT(count, 0);
            request_.append(bytes, static_cast<std::size_t>(count));
          }
          ASSERT_EQ(::send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL), std::ssize(answer));
          if (!closes) {
            ASSERT_TRUE(wait_for_events(fd.get(), POLLIN, much_later()));
          }
        }) {}

  HttpAnswer ask(Clock::time_point deadline = much_later(), std::size_t longest = 1000) {
    HttpAnswer answer =
        http_post(listener_.address(), StreamMaker(std::nullopt), "/v3/kv/txn", "{}", deadline, longest);
    thread_.join();
    return answer;
  }
  const std::string& request() const { return request_; }

 private:
  SocketListener listener_{Address::tcp("127.0.0.1", 0)};
  std::string request_;
  std::thread thread_;
};

TEST(HttpPost, SendsJsonAndReadsTheAnswer) {
  OneAnswer server("HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}");
  const HttpAnswer answer = server.ask();
  EXPECT_EQ(answer.status, 200) << answer.reason;
  EXPECT_EQ(answer.body, "{\"a\":1}");
  EXPECT_THAT(server.request(), HasSubstr("POST /v3/kv/txn HTTP/1.0\r\nHost: 127.0.0.1:"));
  EXPECT_THAT(server.request(), HasSubstr("\r\nContent-Length: 2\r\n\r\n{}"));
}

TEST(HttpPost, TakesAnAnswerThatEndsWithTheConnection) {
  const HttpAnswer answer = OneAnswer("HTTP/1.1 404 Not Found\r\nX: y\r\n\r\nno").ask();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.body, "no");
}

TEST(HttpPost, SaysWhyThereIsNoAnswer) {
  const auto reason = [](const std::string& answer) {
    const HttpAnswer got = OneAnswer(answer).ask();
    EXPECT_EQ(got.status, 0) << answer;
    return got.reason;
  };
  EXPECT_EQ(reason(""), "closed the connection");
  EXPECT_EQ(reason("220 mail ESMTP\r\n\r\n"), "answered what is not HTTP");
  EXPECT_EQ(reason("HTTP/1.0 200 OK\r\n"), "answered what is not HTTP");
  EXPECT_EQ(reason("HTTP/1.0 200 OK\r\ncontent-length: 8\r\n\r\nhalf"),
            "closed the connection in the middle of its answer");
  EXPECT_THAT(reason("HTTP/1.0 200 OK\r\n\r\n" + std::string(2000, 'x')), HasSubstr("more than 1000 bytes"));
}

TEST(HttpPost, DoesNotWaitLongerThanItsDeadline) {
  OneAnswer silent("", false);
  const auto began = Clock::now();
  EXPECT_EQ(silent.ask(began + std::chrono::milliseconds(50)).reason, "did not answer in time");
  EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(50));
}

TEST(HttpPost, SaysThatNobodyListens) {
  Address gone;
  {
    const SocketListener listener(Address::tcp("127.0.0.1", 0));
    gone = listener.address();
  }
  const HttpAnswer answer = http_post(gone, StreamMaker(std::nullopt), "/", "{}", much_later());
  EXPECT_EQ(answer.status, 0);
  EXPECT_EQ(answer.reason, "Connection refused");
}

}  // namespace
}  // namespace distbelief
