#include "tessera/distributed/trace/trace_event_writer.h"

#include <cstddef>
#include <cstdlib>
#include <iterator>

#include <fmt/format.h>

namespace tessera::distributed {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes at the start of a text: one character, or the longest part of one that stands there.
struct Piece {
  std::size_t bytes = 1;
  bool whole = false;
};

// Well-formed UTF-8: Unicode, table 3-7.
Piece first_piece(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {.bytes = 1, .whole = true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // No character is longer than it must be, a surrogate, or above U+10FFFF: after some leads the
  // second byte has a smaller range.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {.bytes = i};
    low = 0x80;
    high = 0xBF;
  }
  return {.bytes = length, .whole = true};
}

void append_ascii(std::string& out, char character) {
  switch (character) {
    case '"':
    case '\\':
      out += '\\';
      out += character;
      break;
    case '\b':
      out += "\\b";
      break;
    case '\f':
      out += "\\f";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      if (character < ' ')
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(character));
      else
        out += character;
  }
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const Piece piece = first_piece(text);
    if (!piece.whole)
      out += kReplacement;
    else if (piece.bytes == 1)
      append_ascii(out, text[0]);
    else
      out += text.substr(0, piece.bytes);
    text.remove_prefix(piece.bytes);
  }
  return out + '"';
}

namespace {

// Exact, where a double would round.
std::string microseconds(std::int64_t nanoseconds) {
  const std::int64_t size = std::abs(nanoseconds);
  return fmt::format("{}{}.{:03}", nanoseconds < 0 ? "-" : "", size / 1000, size % 1000);
}

std::string braces(const std::string& members) { return "{" + members + "}"; }

std::string member(std::string_view key, const std::string& value) {
  return json_text(key) + ":" + value;
}

// Members of an event: name, category, details.
std::string members_of(const TraceEventWriter::What& what) {
  std::string out =
      member("name", json_text(what.name)) + "," + member("cat", json_text(what.category));
  if (!what.args.members().empty()) out += "," + member("args", braces(what.args.members()));
  return out;
}

}  // namespace

std::string& TraceArgs::member(std::string_view key) {
  if (!members_.empty()) members_ += ",";
  return members_ += json_text(key) + ":";
}

TraceArgs& TraceArgs::add(std::string_view key, std::int64_t value) {
  fmt::format_to(std::back_inserter(member(key)), "{}", value);
  return *this;
}

TraceArgs& TraceArgs::add(std::string_view key, const std::vector<std::int64_t>& values) {
  fmt::format_to(std::back_inserter(member(key)), "[{}]", fmt::join(values, ","));
  return *this;
}

TraceArgs& TraceArgs::add_text(std::string_view key, std::string_view text) {
  member(key) += json_text(text);
  return *this;
}

TraceArgs& TraceArgs::add_time(std::string_view key, std::int64_t nanoseconds) {
  member(key) += microseconds(nanoseconds);
  return *this;
}

void TraceEventWriter::put(const std::string& object) {
  if (!text_.empty()) text_ += ",\n";
  text_ += object;
}

void TraceEventWriter::put(char phase, int track, std::int64_t at, const std::string& more) {
  put(fmt::format(R"({{"ph":"{}","pid":{},"tid":{},"ts":{}{}{}}})", phase, rank_, track,
                  microseconds(shifted(at)), more.empty() ? "" : ",", more));
}

void TraceEventWriter::name(const char* what, int track, const std::string& name) {
  put(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}}}})", rank_,
                  track, what, json_text(name)));
}

void TraceEventWriter::order(const char* what, int track, int index) {
  put(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"sort_index":{}}}}})", rank_,
                  track, what, index));
}

void TraceEventWriter::begin(int track, std::int64_t at, const What& what) {
  put('B', track, at, members_of(what));
}

void TraceEventWriter::end(int track, std::int64_t at, const std::string& name) {
  put('E', track, at, member("name", json_text(name)));
}

void TraceEventWriter::complete(int track, std::int64_t begin, std::int64_t end, const What& what) {
  put('X', track, begin, member("dur", microseconds(end - begin)) + "," + members_of(what));
}

void TraceEventWriter::instant(int track, std::int64_t at, const What& what) {
  put('i', track, at, R"("s":"t",)" + members_of(what));
}

void TraceEventWriter::counter(std::int64_t at, const char* name, const TraceArgs& values) {
  put('C', 0, at, member("name", json_text(name)) + "," + member("args", braces(values.members())));
}

void TraceEventWriter::async(char phase, std::int64_t at, std::int64_t id, const What& what) {
  put(phase, 0, at, fmt::format(R"("id":{},)", id) + members_of(what));
}

void TraceEventWriter::flow(char phase, int track, std::int64_t at, std::int64_t id,
                            const char* category) {
  put(phase, track, at,
      fmt::format(R"("id":{},"name":"{}","cat":"{}"{})", id, category, category,
                  phase == 's' ? "" : R"(,"bp":"e")"));
}

}  // namespace tessera::distributed
