#include "tessera/distributed/checked.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tessera/distributed/decorators.h"
#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

template <std::size_t N>
void put_text(std::array<char, N>& place, const std::string& text) {
  // The end of a long text tells more than its beginning: paths.
  const std::size_t from = text.size() < N ? 0 : text.size() - (N - 1);
  std::copy(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), place.begin());
}

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 29;
}

// What member i must agree in: what every rank has the same of.
std::int64_t extent_of(const Collective& call, std::size_t i) {
  if (call.kind == CollectiveKind::kAllToAll) return call.row_elements[i];
  const std::vector<Tensor>& common =
      call.kind == CollectiveKind::kScatter ? call.outputs : call.inputs;
  return common[i].numel();
}

std::size_t members_of(const Collective& call) {
  return call.kind == CollectiveKind::kScatter ? call.outputs.size() : call.inputs.size();
}

std::string counts_text(const CheckRecord& record) {
  std::string out = fmt::format("{} members of", record.members);
  const auto shown =
      std::min<std::size_t>(CheckRecord::kShown, static_cast<std::size_t>(record.members));
  for (std::size_t i = 0; i < shown; ++i)
    out += fmt::format("{}{}", i ? ", " : " ", record.counts[i]);
  if (record.members > static_cast<std::int32_t>(CheckRecord::kShown)) out += ", ...";
  return out + " elements";
}

ReduceOp reduction_of(const CheckRecord& record) {
  return {static_cast<ReduceOp::Kind>(record.reduction), record.factor};
}

std::string device_name(const CheckRecord& record) {
  return static_cast<DeviceType>(record.device) == DeviceType::kCuda ? "cuda" : "cpu";
}

std::string both(const char* field, const RecordOf& here, const std::string& mine,
                 const RecordOf& there, const std::string& theirs) {
  const auto place = [](const RecordOf& of) {
    return fmt::format("rank {} ({}:{})", of.rank, of.record.file.data(), of.record.line);
  };
  return fmt::format("{}: {} on {}, {} on {}", field, mine, place(here), theirs, place(there));
}

}  // namespace

CheckRecord make_check_record(const ProcessGroup& group, const Collective& call, int peer) {
  CheckRecord record;
  record.sequence = call.sequence;
  record.kind = static_cast<std::uint8_t>(call.kind);
  record.reduction = static_cast<std::uint8_t>(call.reduce.kind);
  record.factor = call.reduce.factor;
  record.root = call.root;
  if (const Tensor* first = first_tensor(call)) {
    record.has_tensors = 1;
    record.dtype = static_cast<std::uint8_t>(first->dtype());
    record.device = static_cast<std::uint8_t>(first->device().type);
  }
  const std::size_t members = members_of(call);
  record.members = static_cast<std::int32_t>(members);
  for (std::size_t i = 0; i < members; ++i) {
    const std::int64_t extent = extent_of(call, i);
    if (i < CheckRecord::kShown) record.counts[i] = extent;
    mix(record.extents, static_cast<std::uint64_t>(extent));
  }
  if (!call.rows_sent.empty()) {
    record.rows_to_peer = call.rows_sent[static_cast<std::size_t>(peer)];
    record.rows_from_peer = call.rows_received[static_cast<std::size_t>(peer)];
  }
  put_text(record.group, group.name());
  put_text(record.label, call.label.text);
  put_text(record.file, call.label.file);
  record.line = call.label.line;
  return record;
}

std::string difference(const RecordOf& here, const RecordOf& there) {
  const CheckRecord &a = here.record, &b = there.record;
  const auto text = [](const auto& chars) { return fmt::format("\"{}\"", chars.data()); };
  const auto differ = [&](const char* field, const auto& mine, const auto& theirs) {
    return both(field, here, fmt::format("{}", mine), there, fmt::format("{}", theirs));
  };
  if (a.group != b.group) return both("group", here, text(a.group), there, text(b.group));
  if (a.kind != b.kind) {
    return differ("kind", collective_name(static_cast<CollectiveKind>(a.kind)),
                  collective_name(static_cast<CollectiveKind>(b.kind)));
  }
  if (a.label != b.label) return both("unit", here, text(a.label), there, text(b.label));
  if (a.sequence != b.sequence) return differ("sequence", a.sequence, b.sequence);
  if (a.reduction != b.reduction ||
      std::bit_cast<std::uint64_t>(a.factor) != std::bit_cast<std::uint64_t>(b.factor))
    return differ("reduction", reduction_of(a).name(), reduction_of(b).name());
  if (a.root != b.root) return differ("root", a.root, b.root);
  if (a.members != b.members || a.counts != b.counts)
    return both("counts", here, counts_text(a), there, counts_text(b));
  if (a.extents != b.extents)
    return both("counts behind those shown", here, counts_text(a), there, counts_text(b));
  if (a.has_tensors != 0 && a.dtype != b.dtype) {
    return differ("dtype", dtype_name(static_cast<DType>(a.dtype)),
                  dtype_name(static_cast<DType>(b.dtype)));
  }
  if (a.has_tensors != 0 && b.has_tensors != 0 && a.device != b.device)
    return differ("device", device_name(a), device_name(b));
  if (a.rows_to_peer != b.rows_from_peer)
    return differ("rows", fmt::format("{} sent", a.rows_to_peer),
                  fmt::format("{} expected", b.rows_from_peer));
  if (a.rows_from_peer != b.rows_to_peer)
    return differ("rows", fmt::format("{} expected", a.rows_from_peer),
                  fmt::format("{} sent", b.rows_to_peer));
  return {};
}

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
    const DeviceStream& stream = current_stream(kCpu);
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
