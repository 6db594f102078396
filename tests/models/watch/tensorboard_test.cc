// Tests of event files: checksums, reading back, damage, and a process killed while it writes.
#include "tessera/models/watch/tensorboard.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <thread>

#include "tessera/models/watch/tfrecord.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/watch/readers.h"

namespace tessera::models::watch {
namespace {

using testing::read_events;
using testing::read_text;
using testing::ReadEvents;
using testing::step_metrics;
using testing::TemporaryFolder;

TEST_CASE("crc32c: the examples of RFC 3720, B.4", "[watch]") {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43);
  CHECK(crc32c(rising) == 0x46DD794E);
  CHECK(crc32c(falling) == 0x113FDB5C);
  std::string command(48, '\0');  // an iSCSI read command
  command[0] = 0x01;
  command[1] = static_cast<char>(0xC0);
  command[16] = 0x14;
  command[22] = 0x04;
  command[27] = 0x14;
  command[31] = 0x18;
  command[32] = 0x28;
  command[40] = 0x02;
  CHECK(crc32c(command) == 0xD9963A56);
  CHECK(crc32c("123456789") == 0xE3069283);
  CHECK(crc32c("") == 0);
  CHECK(masked_crc32c("") == 0xA282EAD8);
  CHECK(masked_crc32c("123456789") == ((0xE3069283U >> 15 | 0xE3069283U << 17) + 0xA282EAD8U));
}

// TensorBoard leaves out earlier files' events from the step on that has a SessionLog of status START (1).
TEST_CASE("event file: of a run that goes on", "[watch]") {
  const TemporaryFolder folder;
  TensorBoardWriter file(folder.path(), 8);
  file.write(step_metrics(8));
  const ReadEvents read = read_events(read_text(file.path()));
  REQUIRE(read.events.size() == 3);
  CHECK(read.events[0].version == "brain.Event:2");
  CHECK(read.events[1].session == 1);
  CHECK(read.events[1].step == 8);
  CHECK(read.events[2].session == 0);
}

TEST_CASE("event file: scalars and texts come back", "[watch]") {
  const TemporaryFolder folder;
  StepMetrics step = step_metrics(7);
  step.auxiliary_loss = 0.25;
  step.loss_scale = 512;
  TensorBoardWriter file(folder / "events");
  file.write(step);
  file.write(EvalMetrics{.step = 7, .loss = 1.5, .accuracy = 0.5, .bits_per_byte = 0.75});
  file.add_text("config", "{\"a\":\n 1}\n\xC3\xA9");
  file.add_scalar("own", NAN, 9);
  file.add_text("sample", "cut \xC3 and \xFF <b>\n```\n# x", 9);
  const ReadEvents read = read_events(read_text(file.path()));
  REQUIRE(read.events.size() == 6);
  CHECK(read.left_over == 0);
  CHECK(read.events[0].version == "brain.Event:2");
  const double now = static_cast<double>(time(nullptr));
  for (const auto& event : read.events) CHECK(event.wall_time == Approx(now).margin(60));
  CHECK(read.events[1].step == 7);
  CHECK(read.events[1].scalars ==
        std::map<std::string, float>{{"loss", static_cast<float>(step.loss)},
                                     {"auxiliary_loss", 0.25F},
                                     {"grad_norm", static_cast<float>(step.grad_norm)},
                                     {"lr", static_cast<float>(step.learning_rate)},
                                     {"tokens_per_s", 2000.0F},
                                     {"step_ms", 150.0F},
                                     {"peak_bytes", 1000007.0F},
                                     {"gathered_peak_bytes", 5000.0F},
                                     {"comm_bytes", 700.0F},
                                     {"loss_scale", 512.0F}});
  CHECK(read.events[2].scalars == std::map<std::string, float>{{"eval/loss", 1.5F},
                                                               {"eval/accuracy", 0.5F},
                                                               {"eval/bits_per_byte", 0.75F}});
  CHECK(read.events[3].texts.at("config") == "    {\"a\":\n     1}\n    \xC3\xA9");
  CHECK(std::isnan(read.events[4].scalars.at("own")));
  CHECK(read.events[4].step == 9);
  CHECK(read.events[5].texts.at("sample") ==
        "    cut \xEF\xBF\xBD and \xEF\xBF\xBD <b>\n    ```\n    # x");
}

TEST_CASE("event file: tasks without tokens count samples; names differ", "[watch]") {
  const TemporaryFolder folder;
  StepMetrics step = step_metrics(1);
  step.tokens = 0;
  TensorBoardWriter first(folder.path()), second(folder.path());
  first.write(step);
  CHECK(first.path() != second.path());
  const std::string name = std::filesystem::path(first.path()).filename();
  CHECK(name.find("events.out.tfevents.") == 0);
  const ReadEvents read = read_events(read_text(first.path()));
  CHECK(read.events.at(1).scalars.at("samples_per_s") == 20);
  CHECK(read.events.at(1).scalars.count("tokens_per_s") == 0);
  CHECK(read_events(read_text(second.path())).events.size() == 1);
}

TEST_CASE("event file: a cut tail is no error, a wrong byte is", "[watch]") {
  const TemporaryFolder folder;
  TensorBoardWriter file(folder.path());
  file.add_scalar("a", 1, 1);
  const std::size_t two = read_text(file.path()).size();
  file.add_scalar("b", 2, 2);
  const std::string whole = read_text(file.path());
  for (std::size_t size = two; size < whole.size(); ++size) {
    const ReadEvents read = read_events(whole.substr(0, size));
    CHECK(read.events.size() == 2);
    CHECK(read.left_over == size - two);
  }
  for (std::size_t at = two; at < whole.size(); ++at) {
    std::string wrong = whole;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x10);
    CHECK_THROWS_AS(read_events(wrong), std::runtime_error);
  }
}

// The file's size once it is large enough, or after ten seconds.
void wait_for_bytes(const std::string& folder, std::uintmax_t wanted) {
  for (int i = 0; i < 1000; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.file_size() >= wanted) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST_CASE("event file: whole after SIGKILL in the middle of writing", "[watch]") {
  for (int round = 0; round < 3; ++round) {
    const TemporaryFolder folder;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      TensorBoardWriter file(folder.path());
      for (std::int64_t i = 1;; ++i) file.write(step_metrics(i));
    }
    wait_for_bytes(folder.path(), 20000 + 7777 * static_cast<std::uintmax_t>(round));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    const auto entry = *std::filesystem::directory_iterator(folder.path());
    const ReadEvents read = read_events(read_text(entry.path()));
    CHECK(read.events.size() > 50);
    CHECK(read.left_over < 400);  // less than a record
    for (std::size_t i = 1; i < read.events.size(); ++i) {
      CHECK(read.events[i].step == static_cast<std::int64_t>(i));
      CHECK(read.events[i].scalars.at("loss") == static_cast<float>(10.0 / static_cast<double>(i)));
    }
  }
}

rlimit file_size_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  return limit;
}
void set_file_size_limit(const rlimit& limit) { setrlimit(RLIMIT_FSIZE, &limit); }

TEST_CASE("event file: errors name the path", "[watch]") {
  const TemporaryFolder folder;
  testing::write_text(folder / "file", "");
  CHECK_THROWS_WITH(TensorBoardWriter(folder / "file/below"),
                    Catch::Contains("file/below cannot be made: "));
  CHECK_THROWS_AS(TensorBoardWriter(folder / "file"), Error);
  // Simulates a full disk: files may not grow.
  TensorBoardWriter file(folder.path());
  const rlimit before = file_size_limit();
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  set_file_size_limit({.rlim_cur = 64, .rlim_max = before.rlim_max});
  std::string text;
  try {
    for (int i = 0; i < 9; ++i) file.add_scalar("a", 1, i);
  } catch (const Error& error) {
    text = error.what();
  }
  set_file_size_limit(before);
  signal(SIGXFSZ, handler);
  // An event that does not fit leaves no partial record before the next one.
  file.add_scalar("b", 2, 9);
  const ReadEvents read = read_events(read_text(file.path()));
  CHECK(read.left_over == 0);
  CHECK(read.events.back().step == 9);
  CHECK(text == "[tensorboard] " + file.path() + " cannot be written: File too large; make room");
}

}  // namespace
}  // namespace tessera::models::watch
