#include "tessera/distributed/check_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/distributed/resolved_collective.h"

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

}  // namespace tessera::distributed
