#include "tessera/tensor/profile/step_reader.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "tessera/tensor/profile/step_phases.h"
#include "tessera/tensor/scope_name.h"

namespace tessera {
namespace {

// A repeated element counts once.
std::int64_t bytes_of(const std::vector<TraceBox>& boxes) {
  std::int64_t bytes = 0;
  for (const TraceBox& box : boxes) {
    std::int64_t elements = 1;
    for (int d = 0; d < box.shape.ndim(); ++d) {
      if (box.strides[d] != 0 || box.shape[d] == 0) elements *= box.shape[d];
    }
    bytes += elements * static_cast<std::int64_t>(dtype_size(box.dtype));
  }
  return bytes;
}

// A piece of work of one thread.
struct Piece {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  ProfileFigures* figures = nullptr;
};

struct PhaseChange {
  std::int64_t at = 0;
  ProfilePhase phase = ProfilePhase::kOther;
};

// Gives each moment of a thread to the innermost work that runs, or to `outside`.
template <class Outside>
class Sweep {
 public:
  Sweep(std::int64_t begin, const Outside& outside) : now_(begin), outside_(outside) {}

  void run(std::vector<Piece> pieces, std::int64_t end) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.begin, b.end) < std::tie(b.begin, a.end);
    });
    for (const Piece& piece : pieces) {
      close_until(piece.begin);
      pass(piece.begin);
      piece.figures->total_ns += piece.end - piece.begin;
      open_.push_back(&piece);
    }
    close_until(end);
    pass(end);
  }

 private:
  void close_until(std::int64_t at) {
    while (!open_.empty() && open_.back()->end <= at) {
      pass(open_.back()->end);
      open_.pop_back();
    }
  }
  void pass(std::int64_t to) {
    if (to <= now_) return;
    open_.empty() ? outside_(now_, to) : void(open_.back()->figures->self_ns += to - now_);
    now_ = to;
  }

  std::int64_t now_;
  const Outside& outside_;
  std::vector<const Piece*> open_;
};

class StepReader {
 public:
  StepReader(const ExecutionTrace& trace, const StepTimes& times, ProfileSums& sums)
      : trace_(trace), times_(times), sums_(sums) {}

  void read() {
    read_annotations();
    read_work();
    count_records();
    if (times_.end > times_.stop) {
      const ProfileKey key{kHostThread, kNoModule, "wait for the end of the step's work",
                           ProfileKind::kWait, ProfilePhase::kOther};
      ProfileFigures& figures = sums_.figures[key];
      ++figures.calls;
      pieces_[kHostThread].push_back({times_.stop, times_.end, &figures});
    }
    measure_host();
    for (const auto& [id, name] : sums_.streams) measure_stream(name);
    ++sums_.steps;
    sums_.wall_ns += wall();
    sums_.dropped += trace_.dropped();
  }

 private:
  std::int64_t wall() const { return times_.end - times_.begin; }

  void read_annotations() {
    StepPhases phases;
    changes_.push_back({times_.begin, phases.current()});
    for (std::size_t i = 0; i < trace_.records().size(); ++i) {
      if (const auto* annotation = std::get_if<TraceAnnotation>(&trace_.records()[i])) {
        phases.follow(*annotation);
        if (phases.current() != changes_.back().phase)
          changes_.push_back({trace_.stamps()[i].issued, phases.current()});
        if (annotation->domain == "module" && annotation->phase == "forward")
          note_call(i, phases.current());
      }
      phases_.push_back(phases.current());
    }
  }

  void note_call(std::size_t record, ProfilePhase phase) {
    const std::string& path = module_of(record);
    called_.insert(path);
    if (phase != ProfilePhase::kRecompute) ++sums_.module_calls[path];
  }

  const std::string& module_of(std::size_t record) {
    static const std::string none = kNoModule;
    const ScopeName* scope = trace_.stamps()[record].scope.get();
    if (scope == nullptr) return none;
    const auto [found, is_new] = paths_.try_emplace(scope);
    if (is_new) found->second = scope->path();
    if (found->second.empty()) found->second = kRootModule;
    return found->second;
  }

  // Collectives for a group of parameters are issued early, in another module.
  const std::string& module_of(std::size_t record, const CollectiveRecord& collective) {
    const auto named = called_.find(collective.label.substr(0, collective.label.find(' ')));
    return named != called_.end() ? *named : module_of(record);
  }

  ProfileKey key_of(std::size_t record, const KernelRecord& kernel) {
    return {.thread = {},
            .module = module_of(record),
            .name = kernel.operation.empty() ? kernel.name : kernel.operation,
            .kind = ProfileKind::kOperation,
            .phase = phases_[record]};
  }
  ProfileKey key_of(std::size_t record, const CollectiveRecord& collective) {
    return {.thread = {},
            .module = module_of(record, collective),
            .name = collective.op,
            .kind = ProfileKind::kCollective,
            .phase = phases_[record]};
  }

  ProfileKey key_of(std::size_t record, const EventRecord& event) {
    const bool all = event.action == EventAction::kSynchronize;
    return {.thread = {},
            .module = module_of(record),
            .name = (all ? "synchronize " : "wait for ") + event.name,
            .kind = ProfileKind::kWait,
            .phase = phases_[record]};
  }

  static bool is_wait(const TracedWork& work) {
    return work.name == "wait" || work.name == "event.wait" || work.name == "synchronize";
  }

  // What a piece of work is, and whether a record that is counted for itself stands for it.
  struct WorkFacts {
    ProfileKey key;
    bool has_call = false;
  };

  WorkFacts facts_of(const TracedWork& work) {
    if (work.record != kNoRecord) {
      const TraceRecord& record = trace_.records()[work.record];
      const auto* kernel = std::get_if<KernelRecord>(&record);
      if (kernel != nullptr && kernel->name == work.name)
        return {key_of(work.record, *kernel), true};
      if (const auto* call = std::get_if<CollectiveRecord>(&record))
        return {key_of(work.record, *call), true};
      const auto* event = std::get_if<EventRecord>(&record);
      if (event != nullptr && is_wait(work)) return {key_of(work.record, *event), false};
    }
    const ProfilePhase phase =
        work.position > 0 ? phases_[work.position - 1] : ProfilePhase::kOther;
    return {{.thread = {},
             .module = kNoModule,
             .name = work.name,
             .kind = is_wait(work) ? ProfileKind::kWait : ProfileKind::kOperation,
             .phase = phase},
            false};
  }

  void read_work() {
    for (const TracedWork& work : trace_.work()) {
      auto [key, has_call] = facts_of(work);
      key.thread = thread_of(work);
      ProfileFigures& figures = sums_.figures[key];
      if (has_call)
        timed_.try_emplace(work.record, &figures);
      else
        ++figures.calls;
      pieces_[key.thread].push_back({work.begin, work.end, &figures});
    }
  }

  std::string thread_of(const TracedWork& work) {
    if (work.thread == WorkThread::kHost) return kHostThread;
    const auto [found, is_new] = sums_.streams.try_emplace(work.stream);
    if (is_new) {
      found->second = unused_name(trace_.stream_name(work.stream));
      outside(found->second, "idle", ProfilePhase::kOther) += sums_.wall_ns;  // before this step
    }
    return found->second;
  }

  std::string unused_name(const std::string& name) const {
    std::set<std::string> used = {kHostThread, kUntimedThread, ""};
    for (const auto& stream : sums_.streams) used.insert(stream.second);
    std::string candidate = name;
    for (int number = 2; used.contains(candidate); ++number)
      candidate = name + " " + std::to_string(number);
    return candidate;
  }

  void count_records() {
    for (std::size_t i = 0; i < trace_.records().size(); ++i) {
      const TraceRecord& record = trace_.records()[i];
      if (const auto* kernel = std::get_if<KernelRecord>(&record)) {
        ProfileFigures& figures = figures_of_call(i, *kernel);
        figures.bytes_read += bytes_of(kernel->reads);
        figures.bytes_written += bytes_of(kernel->writes);
        figures.flops += kernel->flops;
      } else if (const auto* call = std::get_if<CollectiveRecord>(&record)) {
        figures_of_call(i, *call).bytes_sent += call->bytes_sent;
      }
    }
  }

  template <class Record>
  ProfileFigures& figures_of_call(std::size_t i, const Record& record) {
    const auto timed = timed_.find(i);
    if (timed != timed_.end()) {
      ++timed->second->calls;
      return *timed->second;
    }
    ProfileKey key = key_of(i, record);
    key.thread = kUntimedThread;
    ProfileFigures& figures = sums_.figures[key];
    ++figures.calls;
    ++figures.untimed_calls;
    return figures;
  }

  std::int64_t& outside(const std::string& thread, const char* name, ProfilePhase phase) {
    return sums_.figures[{thread, kNoModule, name, ProfileKind::kOutside, phase}].self_ns;
  }

  void measure_host() {
    std::size_t at = 0;
    const auto host_time = [&](std::int64_t from, std::int64_t to) {
      while (from < to) {
        while (at + 1 < changes_.size() && changes_[at + 1].at <= from) ++at;
        const std::int64_t until =
            at + 1 < changes_.size() ? std::min(to, changes_[at + 1].at) : to;
        outside(kHostThread, "outside of operations", changes_[at].phase) += until - from;
        from = until;
      }
    };
    Sweep(times_.begin, host_time).run(std::move(pieces_[kHostThread]), times_.end);
  }

  void measure_stream(const std::string& name) {
    const auto idle = [&](std::int64_t from, std::int64_t to) {
      outside(name, "idle", ProfilePhase::kOther) += to - from;
    };
    Sweep(times_.begin, idle).run(std::move(pieces_[name]), times_.end);
  }

  const ExecutionTrace& trace_;
  const StepTimes& times_;
  ProfileSums& sums_;
  std::vector<ProfilePhase> phases_;  // behind each record
  std::vector<PhaseChange> changes_;
  std::map<const ScopeName*, std::string> paths_;
  std::set<std::string> called_;                      // modules
  std::map<std::size_t, ProfileFigures*> timed_;      // by record
  std::map<std::string, std::vector<Piece>> pieces_;  // by thread
};

}  // namespace

void read_step(const ExecutionTrace& trace, const StepTimes& times, ProfileSums& sums) {
  StepReader(trace, times, sums).read();
}

}  // namespace tessera
