#include "tessera/distributed/store/store_message.h"

namespace tessera::distributed {
namespace {

constexpr std::size_t kLengthBytes = 4;

}  // namespace

std::string encode_parts(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    append_number(out, part.size(), kLengthBytes);
    out += part;
  }
  return out;
}

std::optional<std::vector<std::string>> decode_parts(std::string_view payload) {
  std::vector<std::string> parts;
  while (!payload.empty()) {
    if (payload.size() < kLengthBytes) return std::nullopt;
    const std::size_t length = read_number(payload, kLengthBytes);
    payload.remove_prefix(kLengthBytes);
    if (length > payload.size()) return std::nullopt;
    parts.emplace_back(payload.substr(0, length));
    payload.remove_prefix(length);
  }
  return parts;
}

}  // namespace tessera::distributed
