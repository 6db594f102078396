#pragma once

/// Texts between ranks, and errors that all ranks throw: a rank that failed alone would leave the others
/// waiting in the next collective. For reading and writing files, and other work between steps.
///
/// A null group is this rank alone. All functions with a group are collective.

#include <functional>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// Returns the texts of all ranks in rank order, on every rank.
std::vector<std::string> all_gather_texts(ProcessGroup* group, const std::string& text);
/// The same for a list of texts from each rank.
std::vector<std::vector<std::string>> all_gather_lists(ProcessGroup* group,
                                                       const std::vector<std::string>& texts);
/// Returns the texts of all ranks on the first rank, and an empty list on the others.
std::vector<std::string> gather_texts(ProcessGroup* group, const std::string& text);
/// Returns the first rank's text on every rank.
std::string first_text(ProcessGroup* group, const std::string& text);
/// True for the first rank.
bool is_first(const ProcessGroup* group);

/// Returns the error of `work` as a text for throw_first; empty if there is none. A failed collective
/// (CollectiveError, TimeoutError) is thrown as it is: the group has ended, and no text could be sent.
std::string error_of(const std::function<void()>& work);
/// Throws the error that error_of() made a text of. Does nothing for an empty text.
void throw_error_of(const std::string& error);
/// Every rank passes a text of error_of(). If one is not empty, all ranks throw the error of the first such
/// rank, with its text: InvalidArgument, CheckpointError, or StateError for another type.
void throw_first(ProcessGroup* group, const std::string& error);
/// Runs the work on every rank, and then throw_first() of its errors.
void on_all_ranks(ProcessGroup* group, const std::function<void()>& work);
/// The same, with work for the first rank alone.
void on_first_rank(ProcessGroup* group, const std::function<void()>& work);

}  // namespace tessera::distributed
