#include "batches/results.h"

#include <fmt/format.h>

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
  LineFile(const DataFolder& folder, std::string id) : folder_(folder), id_(std::move(id)) {}

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
    return content_->append(lines);
  }

  const DataFolder& folder_;
  std::string id_;
  std::string waiting_;
  std::optional<NewContent> content_;
};

// "file-DIGITS-output" of "batch_DIGITS": the same however often the end is interrupted.
std::string result_id(const BatchObject& batch, std::string_view name) {
  const size_t digits = batch.id.find('_') + 1;
  return fmt::format("file-{}-{}", std::string_view(batch.id).substr(digits), name);
}

Status add_answers(const std::filesystem::path& work, LineFile& output, LineFile& errors,
                   LineCounts& counts) {
  constexpr int64_t kAnyLength = std::numeric_limits<int32_t>::max();
  ASSIGN_OR_RETURN(jobs::BatchInput lines, jobs::BatchInput::open(work, kAnyLength));
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<jobs::InputLine> line, lines.next());
    if (!line) {
      return {};
    }
    ASSIGN_OR_RETURN(const openai::WrittenBatchLine written,
                     openai::parse_written_batch_line(line->text));
    ++(written.failed ? counts.failed : counts.completed);
    line->text += '\n';
    RETURN_IF_ERROR((written.failed ? errors : output).add(line->text));
  }
}

// Returns how many have none. With `errors`, each becomes an error.
Result<int64_t> add_unanswered(const std::filesystem::path& input, int64_t line_bytes,
                               const jobs::WrittenLines& written, LineFile* errors) {
  int64_t count = 0;
  ASSIGN_OR_RETURN(jobs::BatchInput lines, jobs::BatchInput::open(input, line_bytes));
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<jobs::InputLine> line, lines.next());
    if (!line) {
      return count;
    }
    if (written.hash_by_number.contains(line->number)) {
      continue;
    }
    ++count;
    if (errors != nullptr) {
      const openai::BatchLine parsed = openai::parse_batch_line(line->text, {});
      RETURN_IF_ERROR(errors->add(openai::failed_batch_line(
          {line->number, line->hash}, parsed.custom_id, kBatchExpired,
          "the completion window ended before this request was answered")));
    }
  }
}

}  // namespace

Result<Results> write_results(const BatchObject& batch, const DataFolder& folder, Files& files,
                              const BatchOptions& options) {
  const std::filesystem::path work = folder.work(batch.id);
  ASSIGN_OR_RETURN(const jobs::BatchOutput answers, jobs::BatchOutput::open(work));
  LineFile output(folder, result_id(batch, "output"));
  LineFile errors(folder, result_id(batch, "errors"));
  Results results;
  RETURN_IF_ERROR(add_answers(work, output, errors, results.counts));
  const bool expires = batch.state == BatchState::kFinalizing;
  ASSIGN_OR_RETURN(results.unanswered,
                   add_unanswered(folder.input(batch.id), options.line_bytes, answers.written(),
                                  expires ? &errors : nullptr));
  results.counts.failed += expires ? results.unanswered : 0;
  results.counts.total =
      results.counts.completed + results.counts.failed + (expires ? 0 : results.unanswered);
  ASSIGN_OR_RETURN(results.output, output.publish(batch, "output", files.now()));
  ASSIGN_OR_RETURN(results.errors, errors.publish(batch, "errors", files.now()));
  return results;
}

}  // namespace tandem::batches
