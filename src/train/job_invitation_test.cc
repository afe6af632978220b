#include "train/job_invitation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/test_deadline.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    read = FileDescriptor(ends[0]);
    write = FileDescriptor(ends[1]);
  }
  void put(const std::string& text) const {
    EXPECT_EQ(::write(write.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  FileDescriptor read, write;
};

JobInvitation example() {
  return {.folder = "/runs/a",
          .working_folder = "/home/me",
          .addresses = {Address::tcp("10.0.0.1", 4000), Address::tcp("fe80::1", 4000)},
          .token = "secret",
          .config = "lr: 0.1\nmodel: \"a\\nb\"\ndata: \"caf\xE9 \xC3\xA9 \xE2\x82\xAC\"\n",
          .host = "beta",
          .rank = 3,
          .launch = 5,
          .resumes = true,
          .restarts = 2};
}

TEST(JobInvitation, IsOneLineAndReadsBack) {
  const std::string text = example().text();
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const JobInvitation read = JobInvitation::parse(text);
  EXPECT_EQ(read.text(), text);
  EXPECT_EQ(read.addresses, example().addresses);
  EXPECT_EQ(read.config, example().config);
}

TEST(JobInvitation, IsReadFromADescriptorAndLeavesTheRest) {
  const Pipe pipe;
  pipe.put(example().text() + "x");
  EXPECT_EQ(JobInvitation::read(pipe.read.get(), soon()).rank, 3);
  char rest = 0;
  EXPECT_EQ(::read(pipe.read.get(), &rest, 1), 1);
  EXPECT_EQ(rest, 'x');
}

TEST(JobInvitation, WhatIsNoneIsRefusedWithoutRepeatingIt) {
  for (const std::string text : {"{\"token\": \"secret\"}\n", "secret\n", "[]\n"}) {
    try {
      (void)JobInvitation::parse(text);
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("secret")));
    }
  }
  Pipe pipe;
  pipe.put("half");
  pipe.write = FileDescriptor();
  EXPECT_THROW((void)JobInvitation::read(pipe.read.get(), soon()), InputError);
}

}  // namespace
}  // namespace distbelief
