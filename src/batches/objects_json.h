// Files and batches as JSON, as OpenAI's clients read them; and the parts of a batch that the
// database keeps as JSON. Threads: any; pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "batches/objects.h"

namespace tandem::batches {

[[nodiscard]] std::string file_json(const FileObject& file);
// With "tandem": {"estimated_completion_at", "paused"}.
[[nodiscard]] std::string batch_json(const BatchObject& batch, const BatchOutlook& outlook);
[[nodiscard]] std::string deleted_json(std::string_view file_id);
// A page of a list: `objects` are JSON, `ids` theirs.
[[nodiscard]] std::string list_json(std::span<const std::string> objects,
                                    std::span<const std::string> ids, bool has_more);

using Metadata = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] std::string metadata_json(const Metadata& metadata);
[[nodiscard]] std::string faults_json(const std::vector<BatchFault>& faults);
[[nodiscard]] std::string names_json(const std::vector<std::string>& names);
// What metadata_json, faults_json and names_json wrote. Text that they did not write gives what can
// be read of it: the database may be damaged, and a batch is worth more than its metadata.
[[nodiscard]] Metadata parse_metadata(std::string_view json);
[[nodiscard]] std::vector<BatchFault> parse_faults(std::string_view json);
[[nodiscard]] std::vector<std::string> parse_names(std::string_view json);

}  // namespace tandem::batches
