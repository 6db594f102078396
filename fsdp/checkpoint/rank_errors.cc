#include "tessera/fsdp/checkpoint/rank_errors.h"

#include <exception>
#include <vector>

#include "tessera/distributed/objects.h"
#include "tessera/tensor/error.h"

namespace tessera::checkpoint {
namespace {

// The first character of the text says which type it was.
constexpr char kInvalidArgument = 'i', kCheckpointError = 'c', kStateError = 's';

}  // namespace

std::string error_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const InvalidArgument& error) {
    return kInvalidArgument + std::string(error.what());
  } catch (const CheckpointError& error) {
    return kCheckpointError + std::string(error.what());
  } catch (const std::exception& error) {
    return kStateError + std::string(error.what());
  }
}

void throw_first(distributed::ProcessGroup* group, const std::string& error) {
  const std::vector<std::string> all =
      group == nullptr ? std::vector{error} : distributed::all_gather_texts(*group, error);
  for (const std::string& each : all) {
    if (each.empty()) continue;
    const std::string text = each.substr(1);
    if (each.front() == kInvalidArgument) throw InvalidArgument(text);
    if (each.front() == kCheckpointError) throw CheckpointError(text);
    throw StateError(text);
  }
}

void on_all_ranks(distributed::ProcessGroup* group, const std::function<void()>& work) {
  throw_first(group, error_of(work));
}

}  // namespace tessera::checkpoint
