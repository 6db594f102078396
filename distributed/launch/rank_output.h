#pragma once

/// What rank processes print passes through their launcher, which keeps the last lines of each
/// rank for the report of a failure.
///
/// Each rank writes to a channel of its own: a pseudo-terminal where the launcher's stream is a
/// terminal, so that the rank finds one too, with its size, and else a pipe. If the launcher's
/// standard output and standard error go to one place, they are one channel, so that what a rank
/// prints keeps its order. Bytes are passed on unchanged, a line of a rank before the next line of
/// another one, unless it stays without an end. If the launcher's stream has no reader
/// any more, the channels end too, so that ranks get SIGPIPE or EPIPE as if they wrote there.
///
/// Not thread-safe: it belongs to the thread that watches the ranks.

#include <sys/ioctl.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/distributed/launch/output_tail.h"
#include "tessera/distributed/launch/spawn.h"

namespace tessera::distributed {

class RankOutput {
 public:
  /// `sinks`: the launcher's standard output and standard error.
  explicit RankOutput(std::size_t ranks,
                      const std::array<int, 2>& sinks = {STDOUT_FILENO, STDERR_FILENO});
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  /// Opens the channels of one rank, for its process. Where the system refuses one (no more files),
  /// or the launcher's stream is closed or not for writing, the rank has the launcher's own stream and no lines are
  /// kept.
  ChildStreams open(std::size_t rank);
  /// Call it when the process of that rank has started: closes its ends here.
  void started();

  /// Passes on the output of the ranks so far. Waits at most so long for some; never for a reader of
  /// the launcher's streams, where ranks wait instead. True if something was read or passed on.
  bool forward(std::chrono::milliseconds at_most);
  /// Call it when all ranks have ended: passes on the rest. Returns soon also if a process that a
  /// rank has started still holds a channel. Waits for a reader that is slow; if `hurried` (the run
  /// has failed or is to end), for a second at most.
  void finish(const std::function<bool()>& hurried);

  /// The rank's last lines.
  const OutputTail& tail(std::size_t rank) const { return tails_[rank]; }
  /// Why output could not be passed on, as one sentence; empty if all was, or its reader has gone.
  std::string failure() const;

 private:
  /// A stream of the launcher.
  struct Sink {
    int fd = -1;
    bool is_ours = false;  ///< opened here
    bool is_terminal = false;
    winsize size{};        ///< of the terminal
    bool is_gone = false;  ///< its reader
    int error = 0;         ///< of the first write that failed
    /// The channel whose line has no end yet, and since when; nothing: all lines have.
    std::optional<std::size_t> in_line{};
    std::chrono::steady_clock::time_point in_line_since{};
  };
  struct Channel {
    std::size_t rank = 0;
    Sink* sink = nullptr;
    int fd = -1;            ///< our end; -1: closed
    std::string pending{};  ///< read and not yet passed on
  };

  int open_channel(std::size_t rank, Sink& sink);
  void copy_size(Sink& sink);
  bool reads(const Channel& channel) const;
  bool may_write(std::size_t channel) const;
  bool can_write(const Sink& sink) const;
  bool is_done() const;
  bool read(Channel& channel);
  bool write(std::size_t channel);
  bool write_to(Sink& sink, std::string_view& left);
  void end(Sink& sink);

  std::array<Sink, 2> sinks_;
  bool is_one_place_ = false;  ///< both sinks are
  std::size_t most_pending_;   ///< of a channel: then it is not read
  std::vector<Channel> channels_;
  std::size_t first_ = 0;  ///< the channel that may write first the next time
  std::vector<OutputTail> tails_;
  ChildStreams theirs_{};  ///< of the process that is being started
};

}  // namespace tessera::distributed
