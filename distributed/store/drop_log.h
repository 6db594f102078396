#pragma once

/// What the log says of connections that were dropped: a line for each, but no flood of them.

#include <chrono>
#include <functional>
#include <string>

namespace tessera::distributed {

/// Takes one line, without its end. May be empty: nothing is logged.
using LineSink = std::function<void(const std::string&)>;

/// Writes lines to standard error, as warnings.
void warn_on_standard_error(const std::string& line);

/// Not thread-safe.
class DropLog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLines = 10;  ///< in each period
  static constexpr std::chrono::milliseconds kPeriod{10000};

  /// `where` is what they connected to: "the store", "rank 3".
  DropLog(std::string where, LineSink sink);
  /// Says how many it has left out.
  ~DropLog();
  DropLog(const DropLog&) = delete;
  DropLog& operator=(const DropLog&) = delete;

  void note(const std::string& address, const std::string& reason, Clock::time_point now);

 private:
  void say_left_out();

  std::string where_;
  LineSink sink_;
  Clock::time_point period_{};
  int lines_ = 0;
  int left_out_ = 0;
};

}  // namespace tessera::distributed
