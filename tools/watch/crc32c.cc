#include "tessera/tools/watch/crc32c.h"

#include <array>
#include <bit>

namespace tessera::tools {
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

}  // namespace tessera::tools
