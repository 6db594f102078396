#include "tessera/distributed/launch/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <termios.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include <fmt/format.h>

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kPipe = 1 << 16;  // bytes that a pipe holds
// What the ranks have left when they have ended is less. A process that they have started may print
// for ever.
constexpr std::size_t kMostAtTheEnd = 1 << 20;
constexpr milliseconds kTick{10};
constexpr milliseconds kQuiet{50};
constexpr milliseconds kForALineToEnd{50};
constexpr milliseconds kLongest{1000};

// While one exists, a write without a reader, or beyond the largest size of a file, is an error and
// no signal to this thread.
class QuietWrites {
 public:
  QuietWrites() {
    sigemptyset(&signals_);
    for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&signals_, signal);
    sigpending(&earlier_);
    pthread_sigmask(SIG_BLOCK, &signals_, &mask_);
  }
  ~QuietWrites() {
    const timespec now{};
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, signal);
      if (sigismember(&earlier_, signal) == 0) sigtimedwait(&one, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  QuietWrites(const QuietWrites&) = delete;
  QuietWrites& operator=(const QuietWrites&) = delete;

 private:
  sigset_t signals_, earlier_, mask_;
};

bool is_same_place(int a, int b) {
  struct stat first = {}, second = {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Another description of a terminal or a pipe, one that does not block. The launcher's own may belong
// to another program too, for which it must block. Nothing where there is none: files do not block,
// and the system opens none of a socket.
std::optional<int> reopened(int fd) {
  struct stat found = {};
  if (fstat(fd, &found) != 0 || (!S_ISFIFO(found.st_mode) && isatty(fd) != 1)) return std::nullopt;
  const int own = ::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                         O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  return own < 0 ? std::nullopt : std::optional(own);
}

// Ours and the process's end of a channel; -1 where the system refuses them.
struct Ends {
  int ours = -1, theirs = -1;
};

Ends make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  return {.ours = ends[0], .theirs = ends[1]};
}

// It changes no byte: the launcher's terminal does what is to be done.
Ends make_terminal(const winsize& size) {
  const int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ours < 0) return {};
  const bool is_usable = grantpt(ours) == 0 && unlockpt(ours) == 0;
  const int theirs = is_usable ? ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
  termios settings = {};
  if (theirs < 0 || tcgetattr(theirs, &settings) != 0) {
    if (theirs >= 0) close(theirs);
    close(ours);
    return {};
  }
  cfmakeraw(&settings);
  tcsetattr(theirs, TCSANOW, &settings);
  ioctl(ours, TIOCSWINSZ, &size);
  return {.ours = ours, .theirs = theirs};
}

}  // namespace

RankOutput::RankOutput(std::size_t ranks, const std::array<int, 2>& sinks)
    : is_one_place_(is_same_place(sinks[0], sinks[1])), most_pending_(kPipe), tails_(ranks) {
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    const int flags = fcntl(sinks[i], F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) continue;  // it is closed
    const std::optional<int> own = reopened(sinks[i]);
    sinks_[i].fd = own.value_or(sinks[i]);
    sinks_[i].is_ours = own.has_value();
    sinks_[i].is_terminal = isatty(sinks[i]) == 1;
    copy_size(sinks_[i]);
  }
}

RankOutput::~RankOutput() {
  started();
  for (const Channel& channel : channels_)
    if (channel.fd >= 0) close(channel.fd);
  for (const Sink& sink : sinks_)
    if (sink.is_ours) close(sink.fd);
}

ChildStreams RankOutput::open(std::size_t rank) {
  theirs_.out = open_channel(rank, sinks_[0]);
  const bool is_one = is_one_place_ && theirs_.out >= 0;
  theirs_.err = is_one ? theirs_.out : open_channel(rank, sinks_[1]);
  return theirs_;
}

int RankOutput::open_channel(std::size_t rank, Sink& sink) {
  if (sink.fd < 0) return -1;
  const Ends ends = sink.is_terminal ? make_terminal(sink.size) : make_pipe();
  if (ends.ours < 0) return -1;
  fcntl(ends.ours, F_SETFL, fcntl(ends.ours, F_GETFL) | O_NONBLOCK);
  channels_.push_back({.rank = rank, .sink = &sink, .fd = ends.ours});
  return ends.theirs;
}

void RankOutput::started() {
  if (theirs_.out >= 0) close(theirs_.out);
  if (theirs_.err >= 0 && theirs_.err != theirs_.out) close(theirs_.err);
  theirs_ = {};
}

// Keeps the size of the sink's terminal, and gives it to the ranks'.
void RankOutput::copy_size(Sink& sink) {
  winsize now = {};
  if (!sink.is_terminal || ioctl(sink.fd, TIOCGWINSZ, &now) != 0) return;
  const bool is_old = now.ws_row == sink.size.ws_row && now.ws_col == sink.size.ws_col;
  sink.size = now;
  if (is_old) return;
  for (const Channel& channel : channels_)
    if (channel.sink == &sink && channel.fd >= 0) ioctl(channel.fd, TIOCSWINSZ, &now);
}

bool RankOutput::reads(const Channel& channel) const {
  return channel.fd >= 0 && channel.pending.size() < most_pending_;
}

// Not into the line of another channel, which goes on at once or soon.
bool RankOutput::may_write(std::size_t channel) const {
  const Sink& sink = *channels_[channel].sink;
  if (channels_[channel].pending.empty()) return false;
  if (!sink.in_line || *sink.in_line == channel) return true;
  const Channel& other = channels_[*sink.in_line];
  const bool is_waited_for = other.fd >= 0 && Clock::now() - sink.in_line_since < kForALineToEnd;
  return other.pending.empty() && !is_waited_for;
}

bool RankOutput::can_write(const Sink& sink) const {
  for (std::size_t i = 0; i < channels_.size(); ++i)
    if (channels_[i].sink == &sink && may_write(i)) return true;
  return false;
}

bool RankOutput::forward(milliseconds at_most) {
  std::vector<pollfd> waits;
  for (Sink& sink : sinks_) {
    copy_size(sink);
    // Without POLLOUT it tells whether the reader has gone.
    waits.push_back({.fd = sink.is_gone ? -1 : sink.fd,
                     .events = can_write(sink) ? short{POLLOUT} : short{0},
                     .revents = 0});
  }
  for (const Channel& channel : channels_)
    waits.push_back({.fd = reads(channel) ? channel.fd : -1, .events = POLLIN, .revents = 0});
  poll(waits.data(), waits.size(), static_cast<int>(at_most.count()));
  for (std::size_t i = 0; i < sinks_.size(); ++i)
    if ((waits[i].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) end(sinks_[i]);
  const QuietWrites quiet;
  bool has_moved = false;
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    Channel& channel = channels_[i];
    if (channel.fd >= 0 && waits[sinks_.size() + i].revents != 0) has_moved |= read(channel);
  }
  // In turns: where the reader is slow, the first one would take all room.
  for (std::size_t i = 0; i < channels_.size(); ++i)
    has_moved |= write((first_ + i) % channels_.size());
  if (!channels_.empty()) first_ = (first_ + 1) % channels_.size();
  return has_moved;
}

bool RankOutput::read(Channel& channel) {
  std::array<char, kPipe> bytes;
  const ssize_t count = ::read(channel.fd, bytes.data(), bytes.size());
  if (count > 0) {
    const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
    tails_[channel.rank].add(text);
    channel.pending += text;
    return true;
  }
  // All ends of the processes are closed: a pseudo-terminal reports it as EIO.
  if (count == 0 || (errno != EAGAIN && errno != EINTR)) close(std::exchange(channel.fd, -1));
  return false;
}

bool RankOutput::write(std::size_t number) {
  if (!may_write(number)) return false;
  Channel& channel = channels_[number];
  Sink& sink = *channel.sink;
  std::string_view left = channel.pending;
  if (!write_to(sink, left)) return false;
  const std::size_t done = channel.pending.size() - left.size();
  if (done == 0) return false;
  if (channel.pending[done - 1] == '\n') {
    sink.in_line.reset();
  } else if (sink.in_line != number || channel.pending.find('\n') < done) {
    sink.in_line = number;
    sink.in_line_since = Clock::now();
  }
  channel.pending.erase(0, done);
  return true;
}

// Removes what was written from `left`. False if the reader has gone.
bool RankOutput::write_to(Sink& sink, std::string_view& left) {
  while (!left.empty()) {
    pollfd room = {.fd = sink.fd, .events = POLLOUT, .revents = 0};
    if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) break;
    // A pipe that has room at all has it for so much.
    const ssize_t count =
        ::write(sink.fd, left.data(), std::min(left.size(), std::size_t{PIPE_BUF}));
    if (count >= 0) {
      left.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EPIPE || (errno == EIO && sink.is_terminal)) {
      end(sink);
      return false;
    } else if (errno != EINTR && errno != EAGAIN) {
      if (sink.error == 0) sink.error = errno;
      left = {};
    } else {
      break;
    }
  }
  return true;
}

// The reader has gone: ranks learn of it when they next write.
void RankOutput::end(Sink& sink) {
  sink.is_gone = true;
  for (Channel& channel : channels_) {
    if (channel.sink != &sink) continue;
    channel.pending.clear();
    if (channel.fd >= 0) close(std::exchange(channel.fd, -1));
  }
}

bool RankOutput::is_done() const {
  return std::none_of(channels_.begin(), channels_.end(), [](const Channel& channel) {
    return channel.fd >= 0 || !channel.pending.empty();
  });
}

void RankOutput::finish(const std::function<bool()>& hurried) {
  most_pending_ = kMostAtTheEnd;
  const Clock::time_point start = Clock::now();
  Clock::time_point moved = start;
  while (!is_done()) {
    if (forward(kTick)) moved = Clock::now();
    const Clock::time_point now = Clock::now();
    if (now - moved > kQuiet || now - start > kLongest) {
      for (Channel& channel : channels_)
        if (channel.fd >= 0) close(std::exchange(channel.fd, -1));
    }
    if (hurried() && now - moved > kLongest) return;
  }
}

std::string RankOutput::failure() const {
  for (const Sink& sink : sinks_)
    if (sink.error != 0)
      return fmt::format("standard {} cannot be written: {}; make room, or send it elsewhere",
                         &sink == &sinks_[0] ? "output" : "error", std::strerror(sink.error));
  return {};
}

}  // namespace tessera::distributed
