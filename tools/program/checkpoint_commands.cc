// tessera inspect, tessera convert.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/checkpoint/export.h"
#include "tessera/fsdp/checkpoint/index.h"
#include "tessera/fsdp/checkpoint/stored_checkpoint.h"
#include "tessera/models/watch/run_files.h"
#include "tessera/nn/state/state_value_text.h"
#include "tessera/tensor/io/failure_text.h"
#include "tessera/tensor/io/safetensors.h"
#include "tessera/tools/program/command_line.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/options/texts.h"
#include "tessera/tools/program/output_paths.h"

namespace tessera::tools {

namespace {

namespace fs = std::filesystem;
using checkpoint::StepCheckpoint;
using checkpoint::StoredBox;
using checkpoint::StoredCheckpoint;
using checkpoint::StoredTensor;

constexpr std::size_t kPartsShown = 4;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_checkpoint(const std::string& path) { return exists(path + "/" + checkpoint::kIndexFile); }

// The folder of the checkpoints of a run, or `path` itself.
std::string parent_of_steps(const std::string& path) {
  const std::string of_run = path + "/" + models::kCheckpointsFolder;
  return exists(of_run) ? of_run : path;
}

// What PATH stands for. Prints the others of a run.
std::string chosen_checkpoint(const char* command, const std::string& path, bool shows) {
  if (path.empty()) throw CannotStart(fmt::format("{0} needs a path: tessera {0} PATH", command));
  if (!exists(path)) throw CannotStart(fmt::format("there is no {}", path));
  if (is_checkpoint(path)) return path;
  std::optional<std::string> newest;
  std::string problems;
  for (const StepCheckpoint& each : checkpoint::list(parent_of_steps(path))) {
    if (each.problem.empty()) newest = each.folder;
    if (shows)
      print_output("{:<10} {}\n", each.problem.empty() ? "complete" : "incomplete",
                   printable(each.problem.empty() ? each.folder : each.problem));
    problems += each.problem.empty() ? "" : "; " + each.problem;
  }
  if (!newest) throw CannotStart(fmt::format("{} holds no complete checkpoint{}", path, problems));
  return *newest;
}

std::string box_text(const StoredBox& stored) {
  const Shape &begin = stored.box.offset, &extent = stored.box.extent;
  std::string text;
  for (int d = 0; d < begin.ndim(); ++d)
    text += fmt::format("{}{}:{}", d > 0 ? ", " : "", begin[d], begin[d] + extent[d]);
  return "[" + text + "]";
}

// "whole in rank-00000", or the ranges of the parts.
std::string layout_text(const StoredTensor& tensor, const checkpoint::Index& index) {
  const auto file = [&](const StoredBox& stored) {
    return fs::path(index.files[stored.file].name).stem().string();
  };
  if (tensor.boxes.size() == 1) return "whole in " + file(tensor.boxes.front());
  std::string text = fmt::format("{} parts", tensor.boxes.size());
  for (std::size_t i = 0; i < std::min(kPartsShown, tensor.boxes.size()); ++i)
    text += fmt::format("{} {} in {}", i == 0 ? ":" : ",", box_text(tensor.boxes[i]),
                        file(tensor.boxes[i]));
  return text + (tensor.boxes.size() > kPartsShown ? ", ..." : "");
}

std::int64_t bytes_of(DType dtype, const Shape& shape) {
  return shape.numel() * static_cast<std::int64_t>(dtype_size(dtype));
}

void show_tensor(const std::string& name, const std::string& dtype, const Shape& shape,
                 const std::string& bytes, const std::string& layout) {
  print_output("{}  {} {}  {}{}\n", printable(name), dtype, shape.str(), bytes,
               layout.empty() ? "" : "  " + layout);
}

int inspect_checkpoint(const std::string& folder) {
  StoredCheckpoint stored(folder);
  const checkpoint::Index& index = stored.index();
  print_output("checkpoint {}\n", printable(folder));
  std::int64_t bytes = 0;
  for (const StoredTensor& tensor : index.tensors) {
    const std::int64_t size = bytes_of(tensor.dtype, tensor.shape);
    bytes += size;
    show_tensor(tensor.name, dtype_name(tensor.dtype), tensor.shape,
                short_bytes(static_cast<double>(size)), layout_text(tensor, index));
  }
  for (const auto& [name, value] : index.values)
    print_output("{} = {}\n", printable(name), printable(nn::state_value_text(value)));
  std::uint64_t stored_bytes = 0;
  for (const checkpoint::StoredFile& file : index.files) stored_bytes += file.bytes;
  print_output("{} tensors of {}, {} values; {} files of {}\n", index.tensors.size(),
               short_bytes(static_cast<double>(bytes)), index.values.size(), index.files.size(),
               short_bytes(static_cast<double>(stored_bytes)));
  const std::vector<std::string> damage = stored.damage();
  for (const std::string& each : damage) print_failure(each);
  if (damage.empty()) {
    print_output("all bytes have the checksums with which they were written\n");
    return kDone;
  }
  return kRunFailed;
}

int inspect_file(const std::string& path) {
  const SafetensorsFile file(path);
  print_output("file {}\n", printable(path));
  std::uint64_t bytes = 0;
  for (const SafetensorsInfo& tensor : file.tensors()) {
    bytes += tensor.end - tensor.begin;
    show_tensor(tensor.name, tensor.dtype ? dtype_name(*tensor.dtype) : tensor.dtype_name,
                tensor.shape, short_bytes(static_cast<double>(tensor.end - tensor.begin)), "");
  }
  for (const auto& [key, value] : file.metadata())
    print_output("{} = {}\n", printable(key), printable(value));
  print_output("{} tensors of {}; the file has no checksums\n", file.tensors().size(),
               short_bytes(static_cast<double>(bytes)));
  return kDone;
}

}  // namespace

int inspect(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return inspect_file(path);
  return inspect_checkpoint(chosen_checkpoint("inspect", path, /*shows=*/true));
}

void fill_table(models::runs::OptionTable& table, ConvertOptions& options) {
  table.group("Options");
  table.path("out", options.out, "the safetensors file to write; needed");
}

int convert(const ConvertOptions& options) {
  const std::string folder = chosen_checkpoint("convert", options.path, /*shows=*/false);
  if (options.out.empty()) throw CannotStart("--out is needed: the safetensors file to write");
  check_output(options.out, {{"PATH", folder}});
  if (exists(options.out))
    throw CannotStart(
        fmt::format("--out: {} exists, and is not replaced; choose another file", options.out));
  checkpoint::export_model(folder, options.out);
  print_output("{} has the model of {}\n", printable(options.out), printable(folder));
  return kDone;
}

}  // namespace tessera::tools
