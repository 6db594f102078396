#include "tessera/models/watch/tfrecord.h"

#include <array>
#include <bit>

namespace tessera::models::watch {
namespace {

// Table of the reflected polynomial, one entry per byte.
constexpr std::array<std::uint32_t, 256> make_table() {
  constexpr std::uint32_t kPolynomial = 0x82F63B78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
    table[byte] = remainder;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

// Little-endian, like all supported machines.
template <class Number>
void append_number(std::string& out, Number number) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t remainder = 0xFFFFFFFF;
  for (const char byte : bytes)
    remainder = kTable[(remainder ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (remainder >> 8);
  return ~remainder;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

std::string tfrecord(std::string_view bytes) {
  std::string record;
  append_number(record, static_cast<std::uint64_t>(bytes.size()));
  append_number(record, masked_crc32c(record));
  record += bytes;
  append_number(record, masked_crc32c(bytes));
  return record;
}

}  // namespace tessera::models::watch
