#include "tessera/distributed/launch/output_tail.h"

#include <fmt/format.h>

#include "tessera/tensor/io/failure_text.h"

namespace tessera::distributed {

void OutputTail::add(std::string_view bytes) {
  for (const char byte : bytes) add(byte);
}

void OutputTail::add(char byte) {
  constexpr char kEscape = '\x1b';
  if (escape_ == Escape::kBegun) {
    escape_ = byte == '[' ? Escape::kSequence : Escape::kNone;
  } else if (escape_ == Escape::kSequence) {
    if (byte >= '@' && byte <= '~') escape_ = Escape::kNone;  // its last byte
  } else if (byte == kEscape) {
    escape_ = Escape::kBegun;
  } else if (byte == '\r') {
    returned_ = true;
  } else {
    put(byte);
  }
}

void OutputTail::put(char byte) {
  if (!in_line_) {
    lines_.emplace_back();
    if (lines_.size() > kMostLines) lines_.pop_front();
  }
  in_line_ = byte != '\n';
  Line& line = lines_.back();
  if (in_line_ && returned_) line = {};
  returned_ = false;
  if (!in_line_) return;
  if (line.text.size() < kMostBytes)
    line.text += byte;
  else
    ++line.left_out;
}

std::deque<std::string> OutputTail::lines() const {
  std::deque<std::string> texts;
  for (const Line& line : lines_) {
    std::string spaced;
    for (const char byte : line.text) spaced += byte == '\t' ? ' ' : byte;
    texts.push_back(printable(spaced));
    if (line.left_out > 0) texts.back() += fmt::format(" ... and {} bytes more", line.left_out);
  }
  return texts;
}

}  // namespace tessera::distributed
