#include "tessera/distributed/store/store_message.h"

#include <cstdint>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

// 32 bits, the lowest byte first.
constexpr std::size_t kLengthBytes = 4;

void append_length(std::string& out, std::size_t length) {
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    out += static_cast<char>((length >> (8 * i)) & 0xFF);
}

std::size_t read_length(std::string_view bytes) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return length;
}

}  // namespace

std::string encode(const StoreMessage& message) {
  std::size_t total = 0;
  for (const std::string& part : message) total += kLengthBytes + part.size();
  TESSERA_CHECK(total <= kMaxMessageBytes, "rendezvous",
                "a message of {} bytes is too large for the store, which takes {}", total,
                kMaxMessageBytes);
  std::string out;
  append_length(out, total);
  for (const std::string& part : message) {
    append_length(out, part.size());
    out += part;
  }
  return out;
}

std::optional<StoreMessage> MessageReader::next() {
  if (bytes_.size() < kLengthBytes) return std::nullopt;
  const std::size_t total = read_length(bytes_);
  TESSERA_CHECK_AS(DataError, total <= kMaxMessageBytes, "rendezvous",
                   "{} bytes are announced, at most {} are a message of the store", total,
                   kMaxMessageBytes);
  if (bytes_.size() - kLengthBytes < total) return std::nullopt;
  std::string_view rest = std::string_view(bytes_).substr(kLengthBytes, total);
  StoreMessage message;
  while (!rest.empty()) {
    const std::size_t length = rest.size() < kLengthBytes ? rest.size() : read_length(rest);
    TESSERA_CHECK_AS(DataError, rest.size() >= kLengthBytes && length <= rest.size() - kLengthBytes,
                     "rendezvous",
                     "a part of {} bytes does not fit into the {} left of its message", length,
                     rest.size());
    message.emplace_back(rest.substr(kLengthBytes, length));
    rest.remove_prefix(kLengthBytes + length);
  }
  bytes_.erase(0, kLengthBytes + total);
  return message;
}

}  // namespace tessera::distributed
