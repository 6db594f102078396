#include "tessera/fsdp/checkpoint/pending_save.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "tessera/distributed/objects.h"
#include "tessera/distributed/rank_texts.h"
#include "tessera/fsdp/checkpoint/optimizer_names.h"
#include "tessera/fsdp/checkpoint/stored_checkpoint.h"
#include "tessera/fsdp/state/batch_norm_warning.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tensor/io/chunk_checksums.h"
#include "tessera/tensor/io/safetensors.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::checkpoint {
namespace {

using distributed::error_of;
using distributed::first_text;
using distributed::gather_texts;
using distributed::on_all_ranks;
using distributed::on_first_rank;
using distributed::packed_numbers;
using distributed::packed_texts;
using distributed::throw_first;
using distributed::unpacked_numbers;
using distributed::unpacked_texts;

constexpr const char* kWhere = "checkpoint.save";

std::string file_name(std::size_t rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string parent_of(const std::string& folder) {
  const std::string parent = std::filesystem::path(folder).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Beside the folder, on the same file system, with a name that no checkpoint has.
std::string unfinished_name(const std::string& folder) {
  std::random_device source;
  const std::string name = std::filesystem::path(folder).filename().string();
  return fmt::format("{}/.{}.{:08x}{:08x}.unfinished", parent_of(folder), name, source(), source());
}

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

std::uint64_t sum(const std::vector<std::uint64_t>& numbers) {
  std::uint64_t total = 0;
  for (const std::uint64_t number : numbers) total += number;
  return total;
}

// Makes a folder and those above it, and waits until they are on the disk.
void make_folders(const std::string& folder) {
  struct stat found = {};
  if (::stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return;
  const std::string parent = parent_of(folder);
  if (parent != folder) make_folders(parent);
  TESSERA_CHECK_AS(CheckpointError, ::mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST, kWhere,
                   "cannot make the folder \"{}\": {}", folder, std::strerror(errno));
  sync_folder(kWhere, parent);
}

// Of a GPU's tensor in pinned memory: the host waits for a copy when it is read.
Tensor host_copy(const Tensor& tensor) {
  if (tensor.device() == kCpu) return clone(tensor);
  const Tensor host =
      Tensor::empty(tensor.shape(), {.dtype = tensor.dtype(), .device = kCpu, .pinned = true});
  transfer_(host, contiguous(tensor));
  return host;
}

}  // namespace

nn::StateDict state_dict_of(const State& state) {
  nn::StateDict all;
  if (state.model != nullptr) all.add("model.", nn::state_dict(*state.model));
  if (state.optimizer != nullptr)
    all.add("optimizer.", OptimizerNames(*state.optimizer, state.model).state_dict());
  if (state.scheduler != nullptr) all.add("scheduler.", state.scheduler->state_dict());
  if (state.scaler != nullptr) all.add("scaler.", state.scaler->state_dict());
  if (state.values != nullptr) all.add("values.", *state.values);
  return all;
}

PendingSave::PendingSave(std::string folder, const State& state,
                         const std::shared_ptr<RankContext>& snapshot)
    : folder_(without_slash(std::move(folder))), group_(state.group) {
  nn::StateDict mine;
  on_all_ranks(group_.get(), [&] { mine = state_dict_of(state); });
  if (state.model != nullptr && group_ != nullptr && group_->size() > 1 && rank() == 0)
    fsdp::warn_of_local_batch_norms(*state.model, kWhere);
  plan_ = plan_write(mine, group_.get());
  create_folder();  // what it finds is known before the copies
  on_all_ranks(group_.get(), [&] {
    tensors_ = tensors_of(plan_, rank(), mine);
    if (snapshot == nullptr) return;
    const RankScope scope(snapshot);
    for (auto& [name, tensor] : tensors_) tensor = host_copy(tensor);
    current_stream(kCpu).synchronize();  // the thread that writes has another stream
  });
}

PendingSave::~PendingSave() {
  if (!owns_) return;
  std::error_code ignored;
  std::filesystem::remove_all(unfinished_, ignored);
}

int PendingSave::rank() const { return group_ == nullptr ? 0 : group_->rank(); }

std::string PendingSave::file_path(int rank) const {
  return unfinished_ + "/" + file_name(static_cast<std::size_t>(rank));
}

// The index is small beside the elements, or the state is.
void PendingSave::check_space() const {
  std::string existing = parent_of(folder_);
  struct statvfs disk = {};
  while (::statvfs(existing.c_str(), &disk) != 0) {
    if (errno != ENOENT || existing == parent_of(existing)) return;  // writing will tell
    existing = parent_of(existing);
  }
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize,
                      needed = sum(plan_.bytes);
  TESSERA_CHECK_AS(CheckpointError, needed <= free, kWhere,
                   "\"{}\" needs {} bytes, and the disk has {} free; nothing was written", folder_,
                   needed, free);
}

void PendingSave::create_folder() {
  on_first_rank(group_.get(), [this] {
    struct stat found = {};
    TESSERA_CHECK_AS(CheckpointError, ::lstat(folder_.c_str(), &found) != 0, kWhere,
                     "something is at \"{}\" already, and nothing is replaced; choose another path",
                     folder_);
    check_space();
    make_folders(parent_of(folder_));
    unfinished_ = unfinished_name(folder_);
    TESSERA_CHECK_AS(CheckpointError, ::mkdir(unfinished_.c_str(), 0777) == 0, kWhere,
                     "cannot make the folder \"{}\": {}", unfinished_, std::strerror(errno));
    owns_ = true;
  });
  unfinished_ = first_text(group_.get(), unfinished_);
}

void PendingSave::write() {
  if (tensors_.empty()) return;
  error_ = error_of([&] {
    AtomicFile out(kWhere, file_path(rank()));
    ChecksumSink sink(out);
    for (const SafetensorsInfo& entry : write_safetensors(sink, tensors_))
      begins_.push_back(static_cast<std::int64_t>(entry.begin));
    out.commit();
    file_ = {.name = file_name(static_cast<std::size_t>(rank())),
             .bytes = sink.bytes(),
             .checksums = sink.finish()};
  });
  tensors_.clear();  // a snapshot's memory
}

// What the ranks wrote, as they sent it, in the places of the plan.
Index PendingSave::whole_index(const std::vector<std::string>& written) const {
  Index index{.files = {}, .tensors = plan_.tensors, .values = plan_.values};
  std::vector<std::vector<std::int64_t>> begins;  // by rank
  std::vector<std::size_t> numbers, next;         // of the rank's file, and of its next box
  for (std::size_t rank = 0; rank < written.size(); ++rank) {
    const std::vector<std::string> parts = unpacked_texts(written[rank]);
    begins.push_back(unpacked_numbers(parts.at(0)));
    numbers.push_back(index.files.size());
    next.push_back(0);
    if (begins.back().empty()) continue;
    StoredFile file{.name = file_name(rank), .bytes = 0, .checksums = {}};
    for (const std::int64_t number : unpacked_numbers(parts.at(1)))
      file.checksums.push_back(static_cast<std::uint64_t>(number));
    file.bytes = static_cast<std::uint64_t>(unpacked_numbers(parts.at(2)).at(0));
    struct stat found = {};
    const std::string path = file_path(static_cast<int>(rank));
    const bool seen = ::stat(path.c_str(), &found) == 0 &&
                      static_cast<std::uint64_t>(found.st_size) == file.bytes;
    TESSERA_CHECK_AS(CheckpointError, seen, kWhere,
                     "rank {} wrote {} bytes to \"{}\", which rank 0 does not see; all ranks need "
                     "one file system",
                     rank, file.bytes, path);
    index.files.push_back(std::move(file));
  }
  for (StoredTensor& tensor : index.tensors) {
    for (StoredBox& box : tensor.boxes) {
      const std::size_t rank = box.file;
      box.file = numbers[rank];
      box.begin = static_cast<std::uint64_t>(begins[rank].at(next[rank]++));
    }
  }
  return index;
}

void PendingSave::publish() {
  throw_first(group_.get(), error_);
  const std::vector<std::int64_t> checksums(file_.checksums.begin(), file_.checksums.end());
  const std::vector<std::string> written = gather_texts(
      group_.get(), packed_texts({packed_numbers(begins_), packed_numbers(checksums),
                                  packed_numbers({static_cast<std::int64_t>(file_.bytes)})}));
  on_first_rank(group_.get(), [&] {
    const std::string path = unfinished_ + "/" + kIndexFile,
                      text = index_text(whole_index(written));
    parse_index(path, text);  // what cannot be read is not published
    AtomicFile out(kWhere, path);
    out.write(text.data(), text.size());
    out.commit();  // syncs the folder too
    // Fails if something came to the path meanwhile, unless it is an empty folder.
    TESSERA_CHECK_AS(CheckpointError, std::rename(unfinished_.c_str(), folder_.c_str()) == 0,
                     kWhere, "cannot rename \"{}\" to \"{}\": {}", unfinished_, folder_,
                     std::strerror(errno));
    owns_ = false;
    sync_folder(kWhere, parent_of(folder_));
  });
}

void save(const std::string& folder, const State& state) {
  PendingSave pending(folder, state, /*snapshot=*/nullptr);
  pending.write();
  pending.publish();
}

}  // namespace tessera::checkpoint
