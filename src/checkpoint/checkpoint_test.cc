#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace distbelief {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() { fs::create_directories(root_); }
  ~CheckpointTest() override { fs::remove_all(root_); }

  CheckpointState state_at(std::int64_t step) {
    CheckpointState state;
    state.manifest.step = step;
    state.manifest.epoch = 2;
    state.manifest.position = 640;
    state.manifest.seed = 0xFFFFFFFFFFFFFFFFU;
    state.manifest.model_digest = "abc";
    state.manifest.updates = {{"all", 77}};
    state.manifest.next_seq = {{18446744073709551615U, 4}, {3, 1}};
    state.manifest.samples = {{"leased", 60000}, {"lost", 0}};
    state.manifest.extra = R"({"rate":0.1,"list":[1,"two"]})";
    state.values = {{"fc/weight", {2, 2}, values_}, {"fc/bias", {2}, std::span(values_).first(2)}};
    state.state = {{"momentum/fc/weight", {2, 2}, values_}};
    state.blobs = {{"ledger.bin", std::string("\0\1\2", 3)}};
    return state;
  }

  fs::path write(std::int64_t step, std::optional<double> score = {}) {
    CheckpointState state = state_at(step);
    state.manifest.score = score;
    return write_checkpoint(folder_, state);
  }

  /// Names of everything in the folder, hidden things too.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  static void flip_a_bit(const fs::path& path, std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

  const fs::path root_ = fs::temp_directory_path() / ("distbelief_checkpoint_test." + std::to_string(::getpid()));
  const fs::path folder_ = root_ / "run" / "checkpoints";
  std::vector<float> values_ = {1, 2, 3, 4};
};

TEST_F(CheckpointTest, GivesBackWhatWasWritten) {
  const fs::path path = write(1234, 0.91);
  EXPECT_EQ(path, folder_ / "step-00001234");
  const Checkpoint read = read_checkpoint(path);
  const CheckpointManifest expected = state_at(1234).manifest;
  EXPECT_EQ(read.manifest().step, 1234);
  EXPECT_EQ(read.manifest().epoch, expected.epoch);
  EXPECT_EQ(read.manifest().position, expected.position);
  EXPECT_EQ(read.manifest().seed, expected.seed);
  EXPECT_EQ(read.manifest().model_digest, expected.model_digest);
  EXPECT_EQ(read.manifest().score, 0.91);
  EXPECT_EQ(read.manifest().updates, expected.updates);
  EXPECT_EQ(read.manifest().next_seq, expected.next_seq);
  EXPECT_EQ(read.manifest().samples, expected.samples);
  EXPECT_EQ(read.manifest().extra, expected.extra);
  EXPECT_EQ(read.blob("ledger.bin"), std::string("\0\1\2", 3));
  EXPECT_THROW(read.blob("other"), FileError);
  std::vector<float> weight(4);
  read.values().read(read.values().expect("fc/weight", {2, 2}), weight);
  EXPECT_EQ(weight, values_);
  EXPECT_NE(read.state().find("momentum/fc/weight"), nullptr);
}

TEST_F(CheckpointTest, ReplacesOneOfTheSameStep) {
  write(5);
  values_[0] = 99;
  const Checkpoint read = read_checkpoint(write(5));
  std::vector<float> weight(4);
  read.values().read(read.values().expect("fc/weight", {2, 2}), weight);
  EXPECT_EQ(weight[0], 99);
  EXPECT_THAT(names(), ElementsAre("step-00000005"));
}

TEST_F(CheckpointTest, LatestIsTheNewestSoundOneAndSaysWhatItSkipped) {
  write(9);
  write(10);
  write(100000000);  // more digits than the name is padded to
  write(20);
  flip_a_bit(folder_ / "step-100000000" / "values.safetensors", 100);
  fs::resize_file(folder_ / "step-00000020" / "state.safetensors", 30);
  fs::create_directory(folder_ / ".step-00000030.partial");
  fs::create_directory(folder_ / "step-00000040");
  fs::create_directory(folder_ / "step-of-mine");
  const LatestCheckpoint latest = latest_checkpoint(folder_);
  ASSERT_TRUE(latest.checkpoint);
  EXPECT_EQ(latest.checkpoint->manifest().step, 10);
  ASSERT_EQ(latest.skipped.size(), 3U);
  EXPECT_THAT(latest.skipped[0].reason, HasSubstr("values.safetensors: expected CRC32C"));
  EXPECT_THAT(latest.skipped[1].reason, HasSubstr("step-00000040/manifest.json: cannot open"));
  EXPECT_THAT(latest.skipped[2].reason, HasSubstr("state.safetensors: expected"));
}

TEST_F(CheckpointTest, AMissingFolderHoldsNone) {
  EXPECT_FALSE(latest_checkpoint(root_ / "nowhere").checkpoint);
  remove_partial_checkpoints(root_ / "nowhere");
}

TEST_F(CheckpointTest, EveryDamagedBlobIsFound) {
  const fs::path path = write(1);
  flip_a_bit(path / "ledger.bin", 1);
  EXPECT_THROW(read_checkpoint(path), FileError);
}

TEST_F(CheckpointTest, RemovesPartialFoldersAndRestoresWhatWasSetAside) {
  write(1);
  fs::create_directory(folder_ / ".step-00000002.partial");
  fs::rename(folder_ / "step-00000001", folder_ / ".step-00000001.replaced");
  fs::create_directory(folder_ / ".mine.partial");
  remove_partial_checkpoints(folder_);
  EXPECT_THAT(names(), ElementsAre(".mine.partial", "step-00000001"));
}

TEST_F(CheckpointTest, PruneKeepsTheLastAndTheBest) {
  write(1, 0.5);
  write(2, 0.9);
  write(3, 0.9);
  write(4);
  write(5, 0.1);
  fs::create_directory(folder_ / "step-00000000");
  prune_checkpoints(folder_, 2, 1);
  EXPECT_THAT(names(), ElementsAre("step-00000000", "step-00000003", "step-00000004", "step-00000005"));
}

TEST_F(CheckpointTest, AFullDiskLeavesNothingBehind) {
  write(1);
  // A limit on the size of files fails a write as a full disk does.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit tiny = before;
  tiny.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tiny), 0);
  values_.resize(100000);
  CheckpointState state = state_at(2);
  state.values = {{"big", {100000}, values_}};
  std::string message;
  try {
    write_checkpoint(folder_, state);
  } catch (const FileError& error) {
    message = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("values.safetensors: cannot write"));
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(CheckpointTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(root_ / "file") << "x";
  try {
    write_checkpoint(root_ / "file" / "checkpoints", state_at(1));
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("file/checkpoints"));
  }
}

/// Writes checkpoints without end in a child that is killed soon after its n-th; whatever the moment, the
/// newest must be sound and at least as new as what was finished before.
TEST_F(CheckpointTest, SurvivesBeingKilledAtAnyMoment) {
  write(0);
  for (int round = 0; round < 12; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      for (std::int64_t step = 0;; ++step) {
        write(step % 3);
        const auto line = static_cast<char>(step % 3);
        if (::write(pipe_ends[1], &line, 1) != 1) {
          ::_exit(1);
        }
      }
    }
    ::close(pipe_ends[1]);
    char finished = 0;
    for (int i = 0; i <= round % 4; ++i) {
      ASSERT_EQ(::read(pipe_ends[0], &finished, 1), 1);
    }
    for (int i = 0; i < round * 50; ++i) {
      std::this_thread::yield();
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe_ends[0]);
    const LatestCheckpoint latest = latest_checkpoint(folder_);
    EXPECT_TRUE(latest.skipped.empty());
    ASSERT_TRUE(latest.checkpoint);
    EXPECT_GE(latest.checkpoint->manifest().step, finished);
    remove_partial_checkpoints(folder_);
    for (const std::string& name : names()) {
      EXPECT_NE(name.front(), '.');
    }
  }
}

TEST(Manifest, NamesTheKeyThatIsWrong) {
  const std::string good = manifest_text({});
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      parse_manifest(text, "manifest.json");
      return "";
    } catch (const FileError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(complaint(R"({"step":2e999})"), "manifest.json: expected JSON, found a number too large for it");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return complaint(text);
  };
  EXPECT_EQ(complaint(good), "");
  EXPECT_THAT(complaint("{"), HasSubstr("manifest.json: expected JSON"));
  EXPECT_THAT(complaint("[]"), HasSubstr("manifest.json: expected a JSON object"));
  EXPECT_EQ(with("\"version\": 1", "\"version\": 2"), "manifest.json: version: expected 1, found 2");
  EXPECT_EQ(with("\"step\": 0", "\"step\": -1"), "manifest.json: step: expected a non-negative integer");
  EXPECT_EQ(with("\"epoch\": 0", "\"other\": 0"),
            "manifest.json: epoch: expected a non-negative integer, found nothing");
  EXPECT_EQ(with("\"updates\": {}", "\"updates\": []"), "manifest.json: updates: expected an object");
  EXPECT_EQ(with("\"samples\": {}", R"("samples": {"lost": "x"})"),
            "manifest.json: samples.lost: expected a non-negative integer");
  EXPECT_EQ(with("\"next_seq\": {}", R"("next_seq": {"x": 1})"),
            "manifest.json: next_seq.x: expected the number of a lease as key");
  EXPECT_EQ(with("\"files\": {}", R"("files": {"../x": {}})"),
            "manifest.json: files.../x: expected the plain name of a file");
  EXPECT_EQ(with("\"files\": {}", R"("files": {"a": {"crc32c": 1}})"),
            "manifest.json: files.a.bytes: expected a non-negative integer, found nothing");
}

}  // namespace
}  // namespace distbelief
