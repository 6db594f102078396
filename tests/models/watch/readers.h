#pragma once

// Reads an event file as TensorBoard does, with lengths and checksums.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/training/metrics.h"
#include "tessera/tests/support/temporary_folder.h"

namespace tessera::testing {

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;  // of the first event
  int session = 0;      // SessionLog's status
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

struct ReadEvents {
  std::vector<ReadEvent> events;
  std::size_t left_over = 0;  // bytes of an incomplete record
};

// Throws std::runtime_error for a record with a wrong checksum or an invalid message.
ReadEvents read_events(std::string_view file);

void write_text(const std::string& path, const std::string& text);
std::string read_text(const std::string& path);

// The metrics of step `i`, all derived from i.
models::StepMetrics step_metrics(std::int64_t i);

/// Reads XML: enough to check that a document is well-formed and to find its elements.
struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;  // unescaped
  std::string text;                               // its own text, unescaped, all parts joined
  std::vector<XmlElement> children;

  // Visits this element and all below, in document order.
  void visit(const std::function<void(const XmlElement&)>& visitor) const;
  std::vector<const XmlElement*> all(std::string_view wanted) const;
  // Elements whose class attribute contains the word.
  std::vector<const XmlElement*> of_class(std::string_view wanted) const;
  // Its own text and that of all elements below.
  std::string all_text() const;
};

// Returns the root element. Skips a document type. Throws std::runtime_error with the position of
// errors: tags that do not match, bare & and <, unknown entities, repeated attributes, characters
// XML does not allow, invalid UTF-8.
XmlElement parse_xml(std::string_view document);

}  // namespace tessera::testing
