// Reads an event file as TensorBoard does, with lengths and checksums.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::testing {

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;  // of the first event
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

struct ReadEvents {
  std::vector<ReadEvent> events;
  std::size_t left_over = 0;  // bytes of an incomplete record
};

// Throws std::runtime_error for a record with a wrong checksum or an invalid message.
ReadEvents read_events(std::string_view file);

}  // namespace tessera::testing
