#include "jobs/line_feed.h"

#include <sys/resource.h>

#include <system_error>
#include <utility>

#include "jobs/prefix_names.h"
#include "openai/prompt_submission.h"

namespace tandem::jobs {

LineFeed::LineFeed(BatchInput& input, const WrittenLines& written,
                   const openai::ModelDirectory& models, LineOrder& order, LineOrder::Terms terms)
    : input_(input),
      written_(written),
      models_(models),
      order_(order),
      tenant_(terms.tenant),
      batch_(order.join(std::move(terms))),
      custom_ids_(written.custom_ids) {}

LineFeed::~LineFeed() {
  stopping_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
  order_.leave(batch_);
}

void LineFeed::read_ahead() {
  if (!order_.reads_prefixes() || std::exchange(read_ahead_was_asked_, true)) {
    return;
  }
  try {
    thread_ = std::thread([this] { run_ahead(); });
  } catch (const std::system_error&) {
    // No more threads to be had: lines come in the order of the file.
    order_.end_reading(batch_);
  }
}

FedLine LineFeed::parse(const InputLine& line) const {
  FedLine fed{.id = {line.place.number, line.hash},
              .too_long = line.too_long,
              .duplicate = false,
              .parsed = {}};
  if (!line.too_long) {
    fed.parsed = openai::parse_batch_line(line.text, models_.limits().json);
  }
  return fed;
}

// With mutex_: lines get their custom_ids in the order of the file, whichever thread reads them.
// So whether a custom_id is taken does not depend on which lines an earlier run has answered.
Result<std::optional<LineFeed::ReadLine>> LineFeed::read_next() {
  while (!ended_) {
    ASSIGN_OR_RETURN(const std::optional<InputLine> line, input_.next());
    if (!line) {
      ended_ = true;
      order_.end_of_file(batch_);
      break;
    }
    if (written_.hash_by_number.contains(line->place.number)) {
      continue;
    }
    ReadLine read{.place = line->place, .line = parse(*line)};
    const std::optional<std::string>& custom_id = read.line.parsed.custom_id;
    read.line.duplicate = custom_id && !custom_ids_.insert(*custom_id).second;
    return std::optional(std::move(read));
  }
  return std::optional<ReadLine>();
}

Result<std::optional<FedLine>> LineFeed::next() {
  const LineOrder::Pick pick = order_.pick(batch_);
  if (pick.line) {
    ASSIGN_OR_RETURN(const InputLine line, input_.read_at(pick.line->place));
    FedLine fed = parse(line);
    fed.duplicate = pick.line->duplicate;
    return std::optional(std::move(fed));
  }
  const std::scoped_lock lock(mutex_);
  RETURN_IF_ERROR(failure_);
  if (pick.others_turn) {
    return std::optional<FedLine>();
  }
  ASSIGN_OR_RETURN(std::optional<ReadLine> read, read_next());
  return read ? std::optional(std::move(read->line)) : std::nullopt;
}

bool LineFeed::exhausted() const {
  {
    const std::scoped_lock lock(mutex_);
    if (!ended_ || line_is_pending_) {
      return false;
    }
  }
  return order_.known(batch_) == 0;
}

// ---------------------------------------------------------------- reading ahead

// Empty where the line's prompt cannot be made.
std::vector<BlockHash> LineFeed::names_of(const FedLine& line) const {
  if (line.too_long || line.duplicate || line.parsed.error) {
    return {};
  }
  const Result<openai::RoutedGeneration> body =
      openai::parse_generation(line.parsed.endpoint, line.parsed.body, models_);
  if (!body.ok() || body->request.prompts.empty() || body->request.too_long) {
    return {};
  }
  return prefix_names(openai::salted_tenant(tenant_, body->request), body->request.prompts.front(),
                      order_.block_tokens());
}

// False: there is none.
Result<bool> LineFeed::read_one_ahead() {
  std::optional<ReadLine> read;
  {
    const std::scoped_lock lock(mutex_);
    Result<std::optional<ReadLine>> next = read_next();
    if (!next.ok()) {
      order_.end_line(batch_, nullptr, {});
      return next.error();
    }
    read = std::move(next).value();
    line_is_pending_ = read.has_value();
  }
  if (!read) {
    order_.end_line(batch_, nullptr, {});
    return false;
  }
  const KnownLine known{.place = read->place, .duplicate = read->line.duplicate};
  order_.end_line(batch_, &known, names_of(read->line));
  const std::scoped_lock lock(mutex_);
  line_is_pending_ = false;
  return true;
}

void LineFeed::run_ahead() {
  constexpr int kPriority = 10;                     // below the engine and the threads of clients
  (void)::setpriority(PRIO_PROCESS, 0, kPriority);  // of this thread alone
  while (order_.begin_line(batch_, stopping_)) {
    const Result<bool> more = read_one_ahead();
    if (!more.ok()) {
      const std::scoped_lock lock(mutex_);
      failure_ = more.error();
    }
    if (!more.ok() || !*more) {
      break;
    }
  }
  order_.end_reading(batch_);
}

}  // namespace tandem::jobs
