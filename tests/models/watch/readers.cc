#include "tessera/tests/models/watch/readers.h"

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tessera/models/watch/event.pb.h"
#include "tessera/models/watch/tfrecord.h"

namespace tessera::testing {
namespace {

constexpr std::size_t kLengthBytes = 8, kChecksumBytes = 4;

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

void require(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

ReadEvent decoded(std::string_view message) {
  models::watch::event::Event event;
  require(event.ParseFromArray(message.data(), static_cast<int>(message.size())), "no Event");
  ReadEvent out;
  out.wall_time = event.wall_time();
  out.step = event.step();
  out.version = event.file_version();
  out.session = event.session_log().status();
  for (const auto& value : event.summary().value()) {
    if (value.has_simple_value()) out.scalars[value.tag()] = value.simple_value();
    if (!value.has_tensor()) continue;
    require(value.metadata().plugin_data().plugin_name() == "text", "another plugin");
    require(value.tensor().dtype() == 7 && value.tensor().string_val_size() == 1, "no text");
    require(value.tensor().tensor_shape().dim(0).size() == 1, "another shape");
    out.texts[value.tag()] = value.tensor().string_val(0);
  }
  return out;
}

}  // namespace

ReadEvents read_events(std::string_view file) {
  ReadEvents out;
  while (file.size() >= kLengthBytes + kChecksumBytes) {
    require(number_at<std::uint32_t>(file, kLengthBytes) ==
                models::watch::masked_crc32c(file.substr(0, kLengthBytes)),
            "the length's checksum is wrong");
    const std::size_t begin = kLengthBytes + kChecksumBytes;
    const auto length = number_at<std::uint64_t>(file, 0);
    if (file.size() < begin + length + kChecksumBytes) break;
    const std::string_view message = file.substr(begin, length);
    require(number_at<std::uint32_t>(file, begin + length) == models::watch::masked_crc32c(message),
            "the message's checksum is wrong");
    out.events.push_back(decoded(message));
    file.remove_prefix(begin + length + kChecksumBytes);
  }
  out.left_over = file.size();
  return out;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

models::StepMetrics step_metrics(std::int64_t i) {
  const auto x = static_cast<double>(i);
  return {.step = i,
          .loss = 10 / x,
          .grad_norm = 1 + 1 / x,
          .learning_rate = 1e-4 * x,
          .samples = 3,
          .tokens = 300,
          .step_ms = 150,
          .peak_bytes = 1000000 + i,
          .gathered_peak_bytes = 5000,
          .comm_bytes = 700,
          .collectives = 11};
}

namespace {

class Parser {
 public:
  explicit Parser(std::string_view document) : rest_(document), all_(document) {}

  XmlElement document() {
    skip_space();
    if (starts("<!DOCTYPE")) skip_past(">");
    skip_space();
    XmlElement root = element();
    skip_space();
    require(rest_.empty(), "something behind the root");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " at byte " + std::to_string(all_.size() - rest_.size()) +
                             ": " + std::string(rest_.substr(0, 60)));
  }
  void require(bool ok, const char* what) const {
    if (!ok) fail(what);
  }
  bool starts(std::string_view text) const { return rest_.substr(0, text.size()) == text; }
  void skip_space() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0)
      rest_.remove_prefix(1);
  }
  void skip_past(std::string_view text) {
    const std::size_t at = rest_.find(text);
    require(at != std::string_view::npos, "no end");
    rest_.remove_prefix(at + text.size());
  }
  void expect(std::string_view text) {
    require(starts(text), ("expected " + std::string(text)).c_str());
    rest_.remove_prefix(text.size());
  }

  std::string name() {
    std::size_t length = 0;
    while (length < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 ||
            std::string_view("-_:.").find(rest_[length]) != std::string_view::npos))
      ++length;
    require(length > 0, "no name");
    const std::string out(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return out;
  }

  // Characters up to `end`, which is not consumed.
  std::string characters(char end) {
    std::string out;
    while (!rest_.empty() && rest_[0] != end) {
      require(rest_[0] != '<', "bare <");
      if (rest_[0] == '&')
        out += entity();
      else
        out += character();
    }
    return out;
  }

  char entity() {
    static const std::map<std::string_view, char> known = {
        {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&#39;", '\''}};
    for (const auto& [text, meaning] : known)
      if (starts(text)) {
        rest_.remove_prefix(text.size());
        return meaning;
      }
    fail("unknown entity");
  }

  // One character of UTF-8 that XML 1.0 allows.
  std::string_view character() {
    const auto lead = static_cast<unsigned char>(rest_[0]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    require(lead < 0x80 || (lead >= 0xC2 && lead <= 0xF4), "no UTF-8");
    require(rest_.size() >= length, "cut UTF-8");
    std::uint32_t code = length == 1 ? lead : lead & (0x7FU >> length);
    for (std::size_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(rest_[i]);
      require((byte & 0xC0U) == 0x80, "no UTF-8");
      code = code << 6 | (byte & 0x3FU);
    }
    require(code >= 0x20 || code == '\n' || code == '\t' || code == '\r', "control character");
    require(code < 0xD800 || (code > 0xDFFF && code != 0xFFFE && code != 0xFFFF), "no character");
    require(length < 3 || code >= (length == 3 ? 0x800U : 0x10000U), "overlong UTF-8");
    const std::string_view out = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return out;
  }

  void attribute(XmlElement& element) {
    const std::string key = name();
    expect("=\"");
    require(element.attributes.emplace(key, characters('"')).second, "an attribute twice");
    expect("\"");
  }

  XmlElement element() {
    expect("<");
    XmlElement out{.name = name(), .attributes = {}, .text = {}, .children = {}};
    for (skip_space(); !starts(">") && !starts("/>"); skip_space()) attribute(out);
    if (starts("/>")) {
      expect("/>");
      return out;
    }
    expect(">");
    while (!starts("</")) {
      require(!rest_.empty(), "an element without end");
      if (starts("<"))
        out.children.push_back(element());
      else
        out.text += characters('<');
    }
    expect("</");
    require(name() == out.name, "another element ends");
    expect(">");
    return out;
  }

  std::string_view rest_, all_;
};

}  // namespace

void XmlElement::visit(const std::function<void(const XmlElement&)>& visitor) const {
  visitor(*this);
  for (const XmlElement& child : children) child.visit(visitor);
}

std::vector<const XmlElement*> XmlElement::all(std::string_view wanted) const {
  std::vector<const XmlElement*> out;
  visit([&](const XmlElement& element) {
    if (element.name == wanted) out.push_back(&element);
  });
  return out;
}

std::vector<const XmlElement*> XmlElement::of_class(std::string_view wanted) const {
  std::vector<const XmlElement*> out;
  const std::string word = " " + std::string(wanted) + " ";
  visit([&](const XmlElement& element) {
    const auto found = element.attributes.find("class");
    if (found != element.attributes.end() &&
        (" " + found->second + " ").find(word) != std::string::npos)
      out.push_back(&element);
  });
  return out;
}

std::string XmlElement::all_text() const {
  std::string out;
  visit([&](const XmlElement& element) { out += element.text; });
  return out;
}

XmlElement parse_xml(std::string_view document) { return Parser(document).document(); }

}  // namespace tessera::testing
