#pragma once

/// Events of the Chrome trace format, as JSON text: what trace_events.cc is written with. The
/// format: "Trace Event Format", Google, the document that chrome://tracing links to.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::distributed {

// Texts in JSON that is written piece by piece.

/// The text as a JSON string, in quotes. Quotes, backslashes and control characters are escaped.
/// Bytes that are no UTF-8 become U+FFFD: one for each beginning of a character that does not go on
/// (Unicode, section 3.9, "Substitution of Maximal Subparts"), and for each byte that begins none.
std::string json_text(std::string_view text);

/// A JSON object with details of an event.
class TraceArgs {
 public:
  TraceArgs& add(std::string_view key, std::int64_t value);
  TraceArgs& add(std::string_view key, const std::vector<std::int64_t>& values);
  /// Bytes that are no UTF-8 are replaced.
  TraceArgs& add_text(std::string_view key, std::string_view text);
  /// Nanoseconds, written as microseconds.
  TraceArgs& add_time(std::string_view key, std::int64_t nanoseconds);

  const std::string& members() const { return members_; }  ///< without the braces; "" for none

 private:
  std::string& member(std::string_view key);
  std::string members_;
};

class TraceEventWriter {
 public:
  /// All events are of one process, the rank's. `shift` is added to every time (nanoseconds).
  TraceEventWriter(int rank, std::int64_t shift) : rank_(rank), shift_(shift) {}

  struct What {
    std::string name;
    const char* category;
    TraceArgs args{};
  };
  /// `what`: "process_name", "thread_name"; `track` is the thread, 0 for the process.
  void name(const char* what, int track, const std::string& name);
  /// `what`: "process_sort_index", "thread_sort_index".
  void order(const char* what, int track, int index);
  void begin(int track, std::int64_t at, const What& what);
  void end(int track, std::int64_t at, const std::string& name);
  void complete(int track, std::int64_t begin, std::int64_t end, const What& what);
  void instant(int track, std::int64_t at, const What& what);
  void counter(std::int64_t at, const char* name, const TraceArgs& values);
  /// `phase`: 'b' or 'e'. Spans with one id make a track of their own.
  void async(char phase, std::int64_t at, std::int64_t id, const What& what);
  /// `phase`: 's' where an arrow starts, 't' where it passes, 'f' where it ends. Each lies in the
  /// slice of the track that has that time.
  void flow(char phase, int track, std::int64_t at, std::int64_t id, const char* category);

  /// A time of this rank as it is written, in nanoseconds.
  std::int64_t shifted(std::int64_t at) const { return at + shift_; }
  /// JSON objects with commas between them.
  const std::string& text() const { return text_; }

 private:
  void put(char phase, int track, std::int64_t at, const std::string& more);
  void put(const std::string& object);

  int rank_;
  std::int64_t shift_;
  std::string text_;
};

}  // namespace tessera::distributed
