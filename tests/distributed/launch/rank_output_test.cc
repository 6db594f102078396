// What ranks print passes through their launcher: in channels without processes, and in whole runs.
#include "tessera/distributed/launch/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <deque>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/distributed/launch/output_tail.h"
#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/support/temporary_folder.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Lines = std::deque<std::string>;

const auto kNever = [] { return false; };
const auto kHurried = [] { return true; };

// A pipe in place of a stream of the launcher.
class Sink {
 public:
  Sink() {
    REQUIRE(pipe2(ends_.data(), O_CLOEXEC) == 0);
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);  // the launcher's end waits where it is full
  }
  ~Sink() {
    close_reader();
    close(ends_[1]);
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  int fd() const { return ends_[1]; }
  std::string read_all() const {
    std::string text(1 << 16, '\0');
    const ssize_t count = ::read(ends_[0], text.data(), text.size());
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  void close_reader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

// A write without a reader is an error while one exists.
class NoSigpipe {
 public:
  NoSigpipe() {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &earlier_);
  }
  ~NoSigpipe() { sigaction(SIGPIPE, &earlier_, nullptr); }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  struct sigaction earlier_ = {};
};

// Writes as a rank does that does not wait; returns how much.
std::size_t print(int fd, std::string_view text) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(fd, text.data() + written, text.size() - written);
    if (count < 0) break;
    written += static_cast<std::size_t>(count);
  }
  return written;
}

// The ends of two ranks, which have started.
class TwoRanks {
 public:
  explicit TwoRanks(RankOutput& output) {
    for (std::size_t rank = 0; rank < fds_.size(); ++rank) {
      fds_[rank] = dup(output.open(rank).out);
      output.started();
    }
  }
  ~TwoRanks() {
    for (const int fd : fds_) close(fd);
  }
  TwoRanks(const TwoRanks&) = delete;
  TwoRanks& operator=(const TwoRanks&) = delete;
  int fd(std::size_t rank) const { return fds_[rank]; }

 private:
  std::array<int, 2> fds_{};
};

}  // namespace

TEST_CASE("what ranks print arrives unchanged, on the stream of the launcher that it is for",
          "[output]") {
  Sink out, err;
  RankOutput output(3, {out.fd(), err.fd()});
  const std::string binary("\0\r\xff\x1b[2J\n\n end", 13);
  for (std::size_t rank : {0, 2, 1}) {
    const ChildStreams streams = output.open(rank);
    CHECK(streams.out != streams.err);
    CHECK(print(streams.out, binary + std::to_string(rank)) == binary.size() + 1);
    CHECK(print(streams.err, fmt::format("rank {}", rank)) == 6);
    output.started();
  }
  output.finish(kNever);
  CHECK(out.read_all() == binary + "0" + binary + "2" + binary + "1");
  CHECK(err.read_all() == "rank 0rank 2rank 1");
  for (std::size_t rank : {0, 1, 2})
    CHECK_THAT(output.tail(rank).lines().back(), Contains(fmt::format("rank {}", rank)));
  CHECK(output.failure().empty());
}

TEST_CASE("streams that go to one place are one channel, which keeps the order", "[output]") {
  Sink both;
  RankOutput output(1, {both.fd(), both.fd()});
  const ChildStreams streams = output.open(0);
  CHECK(streams.out == streams.err);
  for (int i = 0; i < 3; ++i) print(i % 2 == 0 ? streams.out : streams.err, numbered(i, i + 1));
  output.started();
  output.finish(kNever);
  CHECK(both.read_all() == numbered(0, 3));
  CHECK(output.tail(0).lines() == Lines{"line 0", "line 1", "line 2"});
}

TEST_CASE("output is passed on as soon as it is printed", "[output]") {
  Sink out, err;
  RankOutput output(1, {out.fd(), err.fd()});
  const ChildStreams streams = output.open(0);
  CHECK_FALSE(output.forward(milliseconds(0)));
  print(streams.out, "without an end");
  const auto start = Clock::now();
  CHECK(output.forward(milliseconds(60'000)));
  CHECK(seconds_since(start) < 10);
  CHECK(out.read_all() == "without an end");
}

TEST_CASE("a rank waits for a reader that is late, and the launcher does not", "[output]") {
  Sink out, err;
  RankOutput output(1, {out.fd(), err.fd()});
  const ChildStreams streams = output.open(0);
  std::string all = numbered(0, 100'000);
  std::size_t written = 0;
  for (bool is_moved = true; is_moved;) {
    written += print(streams.out, std::string_view(all).substr(written));
    is_moved = output.forward(milliseconds(0));
  }
  CHECK(written < all.size());  // its pipe is full: it would wait
  all.resize(written);
  output.started();
  std::string read;
  for (int i = 0; i < 10'000 && read.size() < written; ++i) {
    read += out.read_all();
    output.forward(milliseconds(1));
  }
  CHECK(read == all);
}

TEST_CASE("a terminal that nothing reads does not hold the launcher", "[output]") {
  int master = -1, slave = -1;
  REQUIRE(openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
  {
    RankOutput output(1, {slave, slave});
    const ChildStreams streams = output.open(0);
    const int rank = dup(streams.out);
    output.started();
    // More than the terminal and the channel hold.
    std::size_t printed = 0;
    for (int round = 0; round < 30; ++round) {
      printed += print(rank, numbered(0, 3000));
      output.forward(milliseconds(2));
    }
    CHECK(printed > 0);
    CHECK((fcntl(slave, F_GETFL) & O_NONBLOCK) == 0);  // other programs write to it too
    close(rank);
    const Clock::time_point start = Clock::now();
    output.finish(kHurried);
    CHECK(Clock::now() - start < std::chrono::seconds(10));
  }
  close(master);
  close(slave);
}

TEST_CASE("lines of two ranks are not mixed where the reader is slow", "[output]") {
  Sink sink;
  RankOutput output(2, {sink.fd(), sink.fd()});
  const TwoRanks ranks(output);
  // Longer than what is written at a time, and of no length that divides it.
  const std::array<std::string, 2> lines = {std::string(6001, 'a') + "\n",
                                            std::string(4097, 'b') + "\n"};
  std::array<std::string, 2> waiting;
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (int line = 0; line < 40; ++line) waiting[rank] += lines[rank];
  std::string read;
  const std::size_t all = waiting[0].size() + waiting[1].size();
  const Clock::time_point start = Clock::now();
  while (read.size() < all && Clock::now() - start < std::chrono::seconds(20)) {
    for (std::size_t rank = 0; rank < 2; ++rank)
      waiting[rank].erase(0, print(ranks.fd(rank), waiting[rank]));
    output.forward(milliseconds(1));
    read += sink.read_all();
  }
  REQUIRE(read.size() == all);
  std::size_t torn = 0, begin = 0;
  for (std::size_t end; (end = read.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = read.substr(begin, end + 1 - begin);
    torn += line != lines[0] && line != lines[1];
  }
  CHECK(torn == 0);
}

TEST_CASE("a line without an end does not hold the others back for long", "[output]") {
  Sink sink;
  RankOutput output(2, {sink.fd(), sink.fd()});
  const TwoRanks ranks(output);
  print(ranks.fd(0), "step 1");
  while (!output.forward(milliseconds(10))) {
  }
  print(ranks.fd(1), "other\n");
  std::string read;
  const Clock::time_point start = Clock::now();
  while (read.size() < 12 && Clock::now() - start < std::chrono::seconds(20)) {
    output.forward(milliseconds(10));
    read += sink.read_all();
  }
  CHECK(read == "step 1other\n");
}

TEST_CASE("at the end the launcher waits for a slow reader, but not for ever if it must hurry",
          "[output]") {
  Sink out, err;
  const std::string text = numbered(0, 20'000);
  RankOutput output(1, {out.fd(), err.fd()});
  const ChildStreams streams = output.open(0);
  std::size_t written = 0;
  for (int i = 0; i < 3; ++i) {  // fills the sink, what waits for it, and the channel
    if (i > 0) output.forward(milliseconds(0));
    written += print(streams.out, std::string_view(text).substr(written));
  }
  output.started();
  std::string read;
  SECTION("a slow reader") {
    // `hurried` is asked in each turn.
    const auto start = Clock::now();
    output.finish([&] {
      if (seconds_since(start) > 0.2) read += out.read_all();
      return false;
    });
    read += out.read_all();
    CHECK(read == text.substr(0, written));
  }
  SECTION("in a hurry") {
    const auto start = Clock::now();
    output.finish(kHurried);
    CHECK(seconds_since(start) < 5);
    CHECK(text.starts_with(out.read_all()));
  }
  CHECK(output.tail(0).lines().size() == OutputTail::kMostLines);
}

TEST_CASE("a process that keeps the channel of its rank does not delay the end", "[output]") {
  const NoSigpipe errors_only;  // the launcher closes the channel at last
  Sink out, err;
  RankOutput output(1, {out.fd(), err.fd()});
  const ChildStreams streams = output.open(0);
  const int kept = dup(streams.out);
  print(streams.out, "the rank's");
  output.started();
  const auto start = Clock::now();
  SECTION("in silence") {
    output.finish(kNever);
    CHECK(out.read_all() == "the rank's");
  }
  SECTION("and prints for ever") {
    std::string read;
    output.finish([&] { return print(kept, numbered(0, 3)), read += out.read_all(), false; });
    CHECK_THAT(read, Catch::StartsWith("the rank's"));
  }
  CHECK(seconds_since(start) < 10);
  close(kept);
}

TEST_CASE("ranks learn that the reader of the launcher's output has gone", "[output]") {
  const NoSigpipe errors_only;
  Sink out, err;
  RankOutput output(1, {out.fd(), err.fd()});
  const ChildStreams streams = output.open(0);
  out.close_reader();
  output.forward(milliseconds(0));
  errno = 0;
  CHECK(write(streams.out, "x", 1) == -1);
  CHECK(errno == EPIPE);
  CHECK(print(streams.err, "the other goes on") == 17);
  output.started();
  output.finish(kNever);
  CHECK(err.read_all() == "the other goes on");
  CHECK(output.failure().empty());
}

TEST_CASE("output that cannot be written is a failure, and the ranks go on", "[output]") {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  Sink other;
  const bool is_error = GENERATE(false, true);
  RankOutput output(1, {is_error ? other.fd() : full, is_error ? full : other.fd()});
  const ChildStreams streams = output.open(0);
  for (int i = 0; i < 3; ++i) {
    print(is_error ? streams.err : streams.out, numbered(i, i + 1));
    output.forward(milliseconds(0));
  }
  output.started();
  output.finish(kNever);
  CHECK(output.failure() ==
        fmt::format("standard {} cannot be written: No space left on device; make room, or send it "
                    "elsewhere",
                    is_error ? "error" : "output"));
  CHECK(output.tail(0).lines().size() == 3);
  close(full);
}

TEST_CASE("a stream that the launcher has closed is none of its ranks'", "[output]") {
  Sink err;
  RankOutput output(1, {-1, err.fd()});
  const ChildStreams streams = output.open(0);
  CHECK(streams.out == -1);
  CHECK(streams.err >= 0);
  output.started();
  output.finish(kNever);
}

TEST_CASE("a stream that cannot be written is none of its ranks' either", "[output]") {
  const int reserved = open("/dev/null", O_RDONLY | O_CLOEXEC);  // as for a closed stream
  Sink other;
  RankOutput output(1, {reserved, other.fd()});
  const ChildStreams streams = output.open(0);
  CHECK(streams.out == -1);
  CHECK(print(streams.err, "printed") == 7);
  output.started();
  output.finish(kNever);
  CHECK(output.failure().empty());
  CHECK(other.read_all() == "printed");
  close(reserved);
}

TEST_CASE("where the launcher prints to a terminal, ranks find one of its size", "[output]") {
  int master = -1, slave = -1;
  winsize size = {.ws_row = 33, .ws_col = 77, .ws_xpixel = 0, .ws_ypixel = 0};
  if (openpty(&master, &slave, nullptr, nullptr, &size) != 0)
    return testing::skip("this machine has no pseudo-terminals");
  fcntl(master, F_SETFL, O_NONBLOCK);
  {
    RankOutput output(1, {slave, slave});
    const ChildStreams streams = output.open(0);
    CHECK(streams.out == streams.err);
    CHECK(isatty(streams.out) == 1);
    const auto columns = [&] {
      winsize found = {};
      ioctl(streams.out, TIOCGWINSZ, &found);
      return found.ws_col;
    };
    CHECK(columns() == 77);
    size.ws_col = 55;
    ioctl(master, TIOCSWINSZ, &size);
    output.forward(milliseconds(0));
    CHECK(columns() == 55);
    print(streams.out, "\rstep 1\rstep 2\n");
    output.started();
    output.finish(kNever);
    CHECK(output.tail(0).lines() == Lines{"step 2"});
    std::string shown(100, '\0');
    const ssize_t count = read(master, shown.data(), shown.size());
    REQUIRE(count > 0);
    shown.resize(static_cast<std::size_t>(count));
    CHECK(shown == "\rstep 1\rstep 2\r\n");  // the end of the line as this terminal makes it
  }
  close(slave);
  close(master);
}

namespace {

// The lines of the report before the error, and what comes before them.
struct Report {
  std::string before, lines, error;
};

Report report_of(const std::string& output, const std::string& heading) {
  const std::size_t at = output.find(heading), error = output.find("error: ");
  REQUIRE(at != std::string::npos);
  REQUIRE(error != std::string::npos);
  REQUIRE(at < error);
  const std::size_t first = at + heading.size();
  return {.before = output.substr(0, at),
          .lines = output.substr(first, error - first),
          .error = output.substr(error)};
}

}  // namespace

TEST_CASE("the report of a failure has the last 20 lines of the rank that failed first",
          "[output]") {
  const auto [end, error] = GENERATE(table<std::string, std::string>({
      {"prints_and_throws", "error: rank 1: the data ran out\n"},
      {"prints_and_exits", "error: rank 1 exited with code 3 "},
      {"prints_and_is_killed", "error: rank 1 was killed by signal 9 (Killed) "},
  }));
  const int ranks = GENERATE(2, 3, 5);
  Program program(fmt::format("{} --ranks {}", end, ranks));
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 10);
  const Report report = report_of(program.output(), "the last 20 lines that rank 1 printed:\n");
  std::string expected;
  for (int line = 11; line < 30; ++line) expected += fmt::format("  line {} of rank 1\n", line);
  CHECK(report.lines == expected + "  and no end of rank 1\n");
  CHECK_THAT(report.error, Catch::StartsWith(error));
  for (int rank = 0; rank < ranks; ++rank)
    CHECK(count_of(report.before, fmt::format("of rank {}", rank)) == 31);
  CHECK(count_of(program.output(), "lines that rank") == 1);
  program.check_nothing_left();
}

TEST_CASE("a rank that printed one line, or none, before it failed", "[output]") {
  Program one("prints_and_dies --ranks 2");
  CHECK(one.exit_code() == 1);
  CHECK_THAT(one.output(),
             Contains("the last line that rank 1 printed:\n  the last line of rank 1\nerror: "));
  Program none("kills_itself --ranks 3");
  CHECK(none.exit_code() == 1);
  CHECK(count_of(none.output(), " printed:\n") == 0);
}

TEST_CASE("a process that a rank leaves behind does not delay the end of the run", "[output]") {
  Program program("leaves_a_process --ranks 2");
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 8);
  CHECK_THAT(program.output(), Contains("error: rank 1 exited with code 3 ") &&
                                   Contains("  rank 1 leaves a process\n"));
  kill(program.pid_of_rank(1), SIGKILL);
}

TEST_CASE("a run whose output cannot be written fails at its end", "[output]") {
  const testing::TemporaryFolder folder;
  const std::string script = folder / "script";
  std::ofstream(script) << "exec \"$@\" >/dev/full\n";
  Program program("ok --ranks 2", "sh " + script);
  CHECK(program.exit_code() == 1);
  CHECK_THAT(program.output(),
             Contains("error: standard output cannot be written: No space left on device"));
  program.check_nothing_left();
}

}  // namespace tessera::distributed
