#include "tessera/distributed/launch/rank_failure.h"

#include <fmt/format.h>

#include <chrono>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/io/failure_text.h"

namespace tessera::distributed {
namespace {

// Texts of errors name the rank that made them; the report of this failure names it too.
void leave_out_rank(std::string& text, int rank) {
  const std::string named = fmt::format("] rank {}: ", rank);
  for (std::size_t at = text.find(named); at != std::string::npos; at = text.find(named, at))
    text.replace(at, named.size(), "] ");
}

bool is_better(const RankFailure& a, const RankFailure& b) {
  return a.echo != b.echo ? !a.echo : a.time_ns < b.time_ns;
}

}  // namespace

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RankFailure describe_failure(int rank, const std::exception_ptr& error) {
  RankFailure failure{.rank = rank, .time_ns = monotonic_ns(), .error = error};
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveAborted& aborted) {
    failure.echo = true;
    failure.text = failure_text(aborted);
  } catch (const std::exception& exception) {
    failure.text = failure_text(exception);
  } catch (...) {
    failure.text = "an exception of unknown type";
  }
  leave_out_rank(failure.text, rank);
  return failure;
}

const RankFailure* first_failure(const std::vector<RankFailure>& failures) {
  const RankFailure* first = nullptr;
  for (const RankFailure& failure : failures) {
    if (first == nullptr || is_better(failure, *first)) first = &failure;
  }
  return first;
}

}  // namespace tessera::distributed
