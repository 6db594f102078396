#pragma once

/// Small structured data between ranks: texts of any bytes, lists of texts or of integers packed
/// into one, and JSON values. For names, options and verdicts; tensors go through collectives.h.
///
/// The functions that take a group are collective, and the host waits. Sizes are exchanged first,
/// so they may differ. They work over groups that carry CPU tensors. They throw what the
/// collectives throw, and InvalidArgument for a root that is not in the group; CollectiveError
/// naming the rank it came from for data that is not JSON.
///
///     const std::string mine = packed_texts({name, packed_numbers({first, count})});
///     for (const std::string& each : all_gather_texts(group, mine)) {
///       const std::vector<std::string> parts = unpacked_texts(each);
///
/// Packing is not collective. A file that only packs compiles no JSON library, which takes seconds.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// Keeps the order of keys.
using Json = nlohmann::ordered_json;

/// The root's, on every rank; what the others pass does not count.
std::string broadcast_text(ProcessGroup& group, const std::string& text, int root);
Json broadcast_object(ProcessGroup& group, const Json& value, int root);
/// Every rank's, in rank order: on the root, or on all. The other ranks get none.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text, int root);
std::vector<Json> gather_objects(ProcessGroup& group, const Json& value, int root);
std::vector<std::string> all_gather_texts(ProcessGroup& group, const std::string& text);
std::vector<Json> all_gather_objects(ProcessGroup& group, const Json& value);

/// A list of texts of any bytes as one text: each behind its length. Packed lists may be packed
/// again.
std::string packed_texts(const std::vector<std::string>& texts);
/// The list. Throws InvalidArgument for a text that packed_texts did not make.
std::vector<std::string> unpacked_texts(const std::string& packed);
/// Integers as a text of 8 bytes each. A double goes as std::bit_cast<std::int64_t>(it), which
/// keeps every bit, also of NaN.
std::string packed_numbers(const std::vector<std::int64_t>& numbers);
/// The integers. Throws InvalidArgument for a text whose length is not a multiple of 8.
std::vector<std::int64_t> unpacked_numbers(const std::string& packed);

}  // namespace tessera::distributed
