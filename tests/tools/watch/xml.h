// Reads XML: enough to check that a document is well-formed and to find its elements.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::testing {

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
