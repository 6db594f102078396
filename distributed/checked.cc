#include "tessera/distributed/checked.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tessera/distributed/check_record.h"
#include "tessera/distributed/decorators.h"
#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

constexpr auto kRecordBytes = static_cast<std::int64_t>(sizeof(CheckRecord));

// A record that came from another rank of the group, and the record to compare it with.
struct Comparison {
  const std::byte* theirs = nullptr;
  int their_rank = 0;  // in the world
  CheckRecord mine{};
};

[[noreturn]] void throw_difference(const CollectiveSite& site, const std::string& what) {
  ResolvedCollective call;
  call.site = site;
  throw_collective_error(call, what);
}

// The records are sent through the group that checked() was given, whatever sub-group they belong
// to: so the records of a pair of ranks arrive in one order.
class Checked final : public Decorator {
 public:
  // `group` is `root` or a sub-group of it.
  Checked(std::shared_ptr<ProcessGroup> group, std::shared_ptr<ProcessGroup> root)
      : Decorator(std::move(group)), root_(std::move(root)) {
    for (int rank : ranks()) {
      const auto& all = root_->ranks();
      root_ranks_.push_back(
          static_cast<int>(std::find(all.begin(), all.end(), rank) - all.begin()));
    }
    for (int distance = 1; distance < size(); distance *= 2) distances_.push_back(distance);
  }

  void run(const Collective& call) override {
    const bool is_planned = collective_device(call).is_null();
    if (call.kind != CollectiveKind::kExchange && !is_planned && size() > 1) compare(call);
    Decorator::run(call);
  }

  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return std::make_shared<Checked>(inside().make_subgroup(request), root_);
  }

 private:
  // Issued on the stream of the collective, ahead of it. Closures hold addresses, not tensors:
  // memory goes back on the thread that issues.
  void compare(const Collective& call) {
    const auto count = static_cast<std::int64_t>(distances_.size());
    const Tensor sent = records(count), received = records(count);
    const Stream& stream = current_stream(kCpu);
    std::vector<CheckRecord> mine;
    std::vector<Comparison> comparisons;
    for (std::size_t i = 0; i < distances_.size(); ++i) {
      const int to = (rank() + distances_[i]) % size();
      const int from = (rank() + size() - distances_[i]) % size();
      mine.push_back(make_check_record(*this, call, to));
      comparisons.push_back({.theirs = address(received) + i * sizeof(CheckRecord),
                             .their_rank = ranks()[static_cast<std::size_t>(from)],
                             .mine = make_check_record(*this, call, from)});
    }
    stream.enqueue("checked", [to = address(sent), mine = std::move(mine)] {
      std::memcpy(to, mine.data(), mine.size() * sizeof(CheckRecord));
    });
    root_->run(exchange_of(call, sent, received));
    stream.enqueue("checked", [comparisons = std::move(comparisons), site = site_of(*this, call),
                               root = root_, me = ranks()[static_cast<std::size_t>(rank())]] {
      for (const Comparison& each : comparisons) {
        CheckRecord theirs;
        std::memcpy(&theirs, each.theirs, sizeof(theirs));
        const std::string text = difference({each.mine, me}, {theirs, each.their_rank});
        if (text.empty()) continue;
        const std::string what = fmt::format("differs between ranks in its {}", text);
        root->abort(what);
        throw_difference(site, what);
      }
    });
  }

  Collective exchange_of(const Collective& call, const Tensor& sent, const Tensor& received) {
    Collective out{
        .kind = CollectiveKind::kExchange,
        .channel = Channel::kChecks,
        .label = {"check of " + site_text(site_of(*this, call)), call.label.file, call.label.line},
        .ticket = call.ticket};
    for (std::size_t i = 0; i < distances_.size(); ++i) {
      const int to = root_rank((rank() + distances_[i]) % size());
      const int from = root_rank((rank() + size() - distances_[i]) % size());
      out.inputs.push_back(sent.select(0, static_cast<std::int64_t>(i)));
      out.outputs.push_back(received.select(0, static_cast<std::int64_t>(i)));
      out.to.push_back({to, root_->next_place(Channel::kChecks, to, true)});
      out.from.push_back({from, root_->next_place(Channel::kChecks, from, false)});
    }
    return out;
  }

  static Tensor records(std::int64_t count) {
    return Tensor::empty_named({count, kRecordBytes}, {.dtype = DType::kU8, .device = kCpu},
                               MemoryCategory::kOther, "check records");
  }
  static std::byte* address(const Tensor& records) { return write(records).as<std::byte>(); }
  int root_rank(int rank) const { return root_ranks_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<ProcessGroup> root_;
  std::vector<int> root_ranks_;  // by rank of this group
  std::vector<int> distances_;
};

}  // namespace

std::shared_ptr<ProcessGroup> checked(std::shared_ptr<ProcessGroup> group) {
  TESSERA_CHECK(group != nullptr, "checked", "the group is null");
  return std::make_shared<Checked>(group, group);
}

}  // namespace tessera::distributed
