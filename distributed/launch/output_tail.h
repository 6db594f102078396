#pragma once

/// The last lines that a process has printed, in bounded memory.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace tessera::distributed {

/// As a terminal shows them: what a carriage return goes back over is left out, and so are colours
/// and other escape sequences.
class OutputTail {
 public:
  static constexpr std::size_t kMostLines = 20;
  static constexpr std::size_t kMostBytes = 2048;  ///< of a line; the rest of it is counted only

  /// The next bytes of the output, cut anywhere.
  void add(std::string_view bytes);
  /// The lines kept, oldest first, without their ends. The last one may have been unterminated.
  std::deque<std::string> lines() const;

 private:
  struct Line {
    std::string text;
    std::size_t left_out = 0;  ///< bytes
  };
  enum class Escape : std::uint8_t { kNone, kBegun, kOneMore, kSequence, kText, kTextEnds };

  void add(char byte);
  void put(char byte);

  std::deque<Line> lines_;
  bool in_line_ = false;   ///< the last of lines_ is not terminated
  bool returned_ = false;  ///< after a carriage return
  Escape escape_ = Escape::kNone;
};

}  // namespace tessera::distributed
