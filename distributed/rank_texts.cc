#include "tessera/distributed/rank_texts.h"

#include <exception>

#include "tessera/distributed/objects.h"
#include "tessera/tensor/error.h"

namespace tessera::distributed {
namespace {

// The first character of the text says which type it was.
constexpr char kInvalidArgument = 'i', kCheckpointError = 'c', kStateError = 's';

}  // namespace

std::vector<std::string> all_gather_texts(ProcessGroup* group, const std::string& text) {
  return group == nullptr ? std::vector{text} : all_gather_texts(*group, text);
}

std::vector<std::vector<std::string>> all_gather_lists(ProcessGroup* group,
                                                       const std::vector<std::string>& texts) {
  std::vector<std::vector<std::string>> all;
  for (const std::string& each : all_gather_texts(group, packed_texts(texts)))
    all.push_back(unpacked_texts(each));
  return all;
}

std::vector<std::string> gather_texts(ProcessGroup* group, const std::string& text) {
  return group == nullptr ? std::vector{text} : gather_texts(*group, text, 0);
}

std::string first_text(ProcessGroup* group, const std::string& text) {
  return group == nullptr ? text : broadcast_text(*group, text, 0);
}

bool is_first(const ProcessGroup* group) { return group == nullptr || group->rank() == 0; }

std::string error_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const CollectiveError&) {
    throw;
  } catch (const TimeoutError&) {
    throw;
  } catch (const InvalidArgument& error) {
    return kInvalidArgument + std::string(error.what());
  } catch (const CheckpointError& error) {
    return kCheckpointError + std::string(error.what());
  } catch (const std::exception& error) {
    return kStateError + std::string(error.what());
  }
}

void throw_error_of(const std::string& error) {
  if (error.empty()) return;
  const std::string text = error.substr(1);
  if (error.front() == kInvalidArgument) throw InvalidArgument(text);
  if (error.front() == kCheckpointError) throw CheckpointError(text);
  throw StateError(text);
}

void throw_first(ProcessGroup* group, const std::string& error) {
  for (const std::string& each : all_gather_texts(group, error)) throw_error_of(each);
}

void on_all_ranks(ProcessGroup* group, const std::function<void()>& work) {
  throw_first(group, error_of(work));
}

void on_first_rank(ProcessGroup* group, const std::function<void()>& work) {
  on_all_ranks(group, [&] {
    if (is_first(group)) work();
  });
}

}  // namespace tessera::distributed
