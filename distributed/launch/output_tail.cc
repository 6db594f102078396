#include "tessera/distributed/launch/output_tail.h"

#include <fmt/format.h>

#include "tessera/tensor/io/failure_text.h"

namespace tessera::distributed {

void OutputTail::add(std::string_view bytes) {
  for (const char byte : bytes) add(byte);
}

void OutputTail::add(char byte) {
  constexpr char kEscape = '\x1b', kBell = '\a';
  switch (escape_) {
    case Escape::kBegun:  // ESC [ begins a sequence, ESC ] a text; ESC ( and others name a set
      escape_ = byte == '['   ? Escape::kSequence
                : byte == ']' ? Escape::kText
                : std::string_view("()*+#%").find(byte) != std::string_view::npos ? Escape::kOneMore
                                                                                  : Escape::kNone;
      return;
    case Escape::kOneMore:
      escape_ = Escape::kNone;
      return;
    case Escape::kSequence:
      if (byte >= '@' && byte <= '~') escape_ = Escape::kNone;  // its last byte
      return;
    case Escape::kText:  // until BEL or ESC backslash; a line's end means that it was none
      if (byte == kEscape) escape_ = Escape::kTextEnds;
      if (byte == kBell) escape_ = Escape::kNone;
      if (byte != '\n') return;
      break;
    case Escape::kTextEnds:
      escape_ = Escape::kNone;
      return;
    case Escape::kNone:
      break;
  }
  escape_ = byte == kEscape ? Escape::kBegun : Escape::kNone;
  if (byte == '\r')
    returned_ = true;
  else if (byte != kEscape)
    put(byte);
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
