#include "tessera/distributed/store/drop_log.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <utility>

namespace tessera::distributed {

void warn_on_standard_error(const std::string& line) { fmt::print(stderr, "warning: {}\n", line); }

DropLog::DropLog(std::string where, LineSink sink)
    : where_(std::move(where)), sink_(std::move(sink)) {}

DropLog::~DropLog() {
  try {
    say_left_out();
  } catch (const std::exception&) {  // no line is worth a failure
  }
}

void DropLog::note(const std::string& address, const std::string& reason, Clock::time_point now) {
  if (!sink_) return;
  if (now - period_ >= kPeriod) {
    say_left_out();
    period_ = now;
    lines_ = 0;
  }
  if (lines_ == kLines) {
    ++left_out_;
    return;
  }
  ++lines_;
  sink_(fmt::format("{} dropped a connection from {}: {}", where_, address, reason));
}

void DropLog::say_left_out() {
  if (left_out_ > 0) sink_(fmt::format("{} dropped {} more connections", where_, left_out_));
  left_out_ = 0;
}

}  // namespace tessera::distributed
