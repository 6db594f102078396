#include "tessera/tensor/io/failure_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <new>
#include <system_error>

#include "tessera/tensor/error.h"

namespace tessera {
namespace {

std::string text_of_file(const std::filesystem::filesystem_error& error) {
  const std::string path = error.path1().empty() ? "the current folder" : error.path1().string();
  return fmt::format("{} cannot be used: {}; check that it is there and that you may use it", path,
                     error.code().message());
}

std::string text_of(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "the system gives this process no more memory; take a smaller model or batch or fewer "
           "ranks, or raise the limit (ulimit -v)";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return text_of_file(*file);
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return fmt::format(
        "the system starts no more threads: {}; take fewer ranks, or raise the "
        "limit of threads (ulimit -u) or of memory (ulimit -v)",
        system->code().message());
  return error.what();
}

}  // namespace

std::string failure_text(const std::exception& error) {
  std::string text = text_of(error);
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    text += ": " + failure_text(cause);
  } catch (...) {
    text += ": an exception of unknown type";
  }
  return text;
}

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    // U+0080 to U+009F: control characters that take two bytes in UTF-8.
    const bool is_wide_control = byte == 0xc2 && i + 1 < text.size() &&
                                 (static_cast<std::uint8_t>(text[i + 1]) & 0xe0) == 0x80;
    if (is_wide_control)
      out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[++i]));
    else if (byte == '\n')
      out += "\\n";
    else if (byte == '\r')
      out += "\\r";
    else if (byte == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += text[i];
  }
  return out;
}

}  // namespace tessera
