// Reads XML: enough to see that a document is well-formed and what is in it.
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
  std::string text;                               // its own, unescaped, all parts together
  std::vector<XmlElement> children;

  // This one and all below, in the order of the document.
  void visit(const std::function<void(const XmlElement&)>& visitor) const;
  std::vector<const XmlElement*> all(std::string_view wanted) const;
  // Those whose class attribute has the word.
  std::vector<const XmlElement*> of_class(std::string_view wanted) const;
  // Its own and those of all below.
  std::string all_text() const;
};

// The root. A document type in front is passed over. Throws std::runtime_error with the place of
// what is not well-formed: tags that do not match, bare & and <, unknown entities, attributes
// twice, characters XML does not allow, bytes that are no UTF-8.
XmlElement parse_xml(std::string_view document);

}  // namespace tessera::testing
