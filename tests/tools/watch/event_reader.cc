#include "tessera/tests/tools/watch/event_reader.h"

#include <cstring>
#include <stdexcept>

#include "tessera/tools/watch/crc32c.h"
#include "tessera/tools/watch/event.pb.h"

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
  tools::event::Event event;
  require(event.ParseFromArray(message.data(), static_cast<int>(message.size())), "no Event");
  ReadEvent out;
  out.wall_time = event.wall_time();
  out.step = event.step();
  out.version = event.file_version();
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
                tools::masked_crc32c(file.substr(0, kLengthBytes)),
            "the length's checksum is wrong");
    const std::size_t begin = kLengthBytes + kChecksumBytes;
    const auto length = number_at<std::uint64_t>(file, 0);
    if (file.size() < begin + length + kChecksumBytes) break;
    const std::string_view message = file.substr(begin, length);
    require(number_at<std::uint32_t>(file, begin + length) == tools::masked_crc32c(message),
            "the message's checksum is wrong");
    out.events.push_back(decoded(message));
    file.remove_prefix(begin + length + kChecksumBytes);
  }
  out.left_over = file.size();
  return out;
}

}  // namespace tessera::testing
