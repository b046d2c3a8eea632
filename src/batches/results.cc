#include "batches/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "jobs/batch_input.h"
#include "jobs/batch_output.h"
#include "openai/batch_line.h"

namespace tandem::batches {
namespace {

// Lines of one of the two files, gathered into large writes.
class LineFile {
 public:
  LineFile(const DataFolder& folder, std::string id, CountedBytes& space)
      : folder_(folder), id_(std::move(id)), space_(space) {}

  Status add(std::string_view line) {
    constexpr size_t kFlushBytes = 1 << 20;
    waiting_ += line;
    return waiting_.size() < kFlushBytes ? Status() : flush();
  }

  // Nothing where no line was added.
  Result<std::optional<FileObject>> publish(const BatchObject& batch, std::string_view name,
                                            int64_t now) {
    RETURN_IF_ERROR(flush());
    if (!content_) {
      return std::optional<FileObject>();
    }
    RETURN_IF_ERROR(content_->publish());
    FileObject file{.id = id_,
                    .owner = batch.owner,
                    .filename = fmt::format("{}_{}.jsonl", batch.id, name),
                    .purpose = std::string(kPurposeOutput),
                    .bytes = content_->bytes(),
                    .created_at = now,
                    .expires_at = {}};
    if (batch.output_expires_after) {
      file.expires_at = now + *batch.output_expires_after;
    }
    return std::optional(std::move(file));
  }

 private:
  Status flush() {
    if (waiting_.empty()) {
      return {};
    }
    if (!content_) {
      ASSIGN_OR_RETURN(NewContent content, NewContent::create(folder_, id_));
      content_.emplace(std::move(content));
    }
    const std::string lines = std::exchange(waiting_, {});
    space_.set(space_.bytes() + std::ssize(lines));
    return content_->append(lines);
  }

  const DataFolder& folder_;
  std::string id_;
  CountedBytes& space_;
  std::string waiting_;
  std::optional<NewContent> content_;
};

// "file-DIGITS-output" of "batch_DIGITS": the same however often the end is interrupted.
std::string result_id(const BatchObject& batch, std::string_view name) {
  const size_t digits = batch.id.find('_') + 1;
  return fmt::format("file-{}-{}", std::string_view(batch.id).substr(digits), name);
}

// Receives the lines, until it has to stop.
struct Target {
  const std::function<bool()>& should_stop;
  LineFile& output;
  LineFile& errors;
  [[nodiscard]] Status check_stop() const {
    if (should_stop && should_stop()) {
      return Error{ErrorCode::kUnavailable, "stopped while the results were written", ""};
    }
    return {};
  }
};

Status add_answers(const std::filesystem::path& work, const Target& to, LineCounts& counts) {
  constexpr int64_t kAnyLength = std::numeric_limits<int32_t>::max();
  ASSIGN_OR_RETURN(jobs::BatchInput lines, jobs::BatchInput::open(work, kAnyLength));
  for (;;) {
    RETURN_IF_ERROR(to.check_stop());
    ASSIGN_OR_RETURN(std::optional<jobs::InputLine> line, lines.next());
    if (!line) {
      return {};
    }
    ASSIGN_OR_RETURN(const openai::WrittenBatchLine written,
                     openai::parse_written_batch_line(line->text));
    ++(written.failed ? counts.failed : counts.completed);
    line->text += '\n';
    RETURN_IF_ERROR((written.failed ? to.errors : to.output).add(line->text));
  }
}

// Returns how many have none. If the batch expires, each becomes an error.
Result<int64_t> add_unanswered(const BatchObject& batch, const std::filesystem::path& input,
                               const jobs::WrittenLines& written, const Target& to) {
  int64_t count = 0;
  const int64_t line_bytes = std::max<int64_t>(1, batch.input_bytes);
  ASSIGN_OR_RETURN(jobs::BatchInput lines, jobs::BatchInput::open(input, line_bytes));
  for (;;) {
    RETURN_IF_ERROR(to.check_stop());
    ASSIGN_OR_RETURN(const std::optional<jobs::InputLine> line, lines.next());
    if (!line) {
      return count;
    }
    if (written.hash_by_number.contains(line->place.number)) {
      continue;
    }
    ++count;
    if (batch.state == BatchState::kFinalizing) {
      const openai::BatchLine parsed = openai::parse_batch_line(line->text, {});
      RETURN_IF_ERROR(to.errors.add(openai::failed_batch_line(
          {line->place.number, line->hash}, parsed.custom_id, kBatchExpired,
          "the completion window ended before this request was answered")));
    }
  }
}

}  // namespace

Result<Results> write_results(const BatchObject& batch, const DataFolder& folder, Files& files,
                              const std::function<bool()>& should_stop) {
  const std::filesystem::path work = folder.work(batch.id);
  ASSIGN_OR_RETURN(
      const jobs::BatchOutput answers,
      jobs::BatchOutput::open(work, {.drops_damage = true, .should_stop = should_stop}));
  Results results{.space = files.begin_counting(), .output = {}, .errors = {}, .counts = {}};
  LineFile output(folder, result_id(batch, "output"), results.space);
  LineFile errors(folder, result_id(batch, "errors"), results.space);
  const Target target{.should_stop = should_stop, .output = output, .errors = errors};
  RETURN_IF_ERROR(add_answers(work, target, results.counts));
  const bool expires = batch.state == BatchState::kFinalizing;
  ASSIGN_OR_RETURN(results.unanswered,
                   add_unanswered(batch, folder.input(batch.id), answers.written(), target));
  results.counts.failed += expires ? results.unanswered : 0;
  results.counts.total =
      results.counts.completed + results.counts.failed + (expires ? 0 : results.unanswered);
  ASSIGN_OR_RETURN(results.output, output.publish(batch, "output", files.now()));
  Result<std::optional<FileObject>> published = errors.publish(batch, "errors", files.now());
  if (!published.ok()) {
    if (results.output) {
      folder.remove_content(results.output->id);  // no row names it
    }
    return published.error();
  }
  results.errors = *std::move(published);
  return results;
}

}  // namespace tandem::batches
