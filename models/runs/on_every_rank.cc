#include "tessera/models/runs/on_every_rank.h"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "tessera/distributed/objects.h"
#include "tessera/models/runs/option_error.h"
#include "tessera/tensor/error.h"

namespace tessera::models::runs {
namespace {

struct ErrorClass {
  bool (*is)(const std::exception&);
  void (*raise)(const std::string& text);
};

template <class E>
constexpr ErrorClass error_class() {
  return {[](const std::exception& error) { return dynamic_cast<const E*>(&error) != nullptr; },
          [](const std::string& text) { throw E(text); }};
}

// Derived classes before their bases. The last one takes all others.
constexpr std::array kClasses = {
    error_class<OptionError>(), error_class<InvalidArgument>(), error_class<StateError>(),
    error_class<DataError>(),   error_class<CheckpointError>(), error_class<OutOfMemory>(),
    error_class<DeviceError>(), error_class<TimeoutError>(),    error_class<Error>()};

std::string packed_error(const std::exception& error) {
  std::size_t at = 0;
  while (at + 1 < kClasses.size() && !kClasses[at].is(error)) ++at;
  return distributed::packed_texts(
      {distributed::packed_numbers({static_cast<std::int64_t>(at)}), error.what()});
}

// "" for none.
std::string packed_error(const std::exception_ptr& error) {
  if (error == nullptr) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return packed_error(caught);
  }
}

}  // namespace

void throw_first_error(distributed::ProcessGroup& group, const std::exception_ptr& mine) {
  for (const std::string& each : distributed::all_gather_texts(group, packed_error(mine))) {
    if (each.empty()) continue;
    const std::vector<std::string> parts = distributed::unpacked_texts(each);
    const std::int64_t at = distributed::unpacked_numbers(parts.at(0)).at(0);
    kClasses.at(static_cast<std::size_t>(at)).raise(parts.at(1));
  }
}

}  // namespace tessera::models::runs
