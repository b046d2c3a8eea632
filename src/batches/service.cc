#include "batches/service.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

#include "batches/batch_request.h"
#include "batches/objects_json.h"

namespace tandem::batches {

Service::Service(BatchOptions options, const Clock& clock, int64_t unix_seconds, DataFolder folder)
    : options_(std::move(options)),
      clock_(clock),
      began_(unix_seconds, clock.now()),
      folder_(std::move(folder)) {}

Service::~Service() { stop(); }

Result<std::unique_ptr<Service>> Service::open(BatchOptions options, const Clock& clock,
                                               int64_t unix_seconds) {
  ASSIGN_OR_RETURN(DataFolder folder, DataFolder::open(options.data_folder));
  std::unique_ptr<Service> service(
      new Service(std::move(options), clock, unix_seconds, std::move(folder)));
  RETURN_IF_ERROR(service->open_store());
  return service;
}

Status Service::open_store() {
  ASSIGN_OR_RETURN(store_, Store::open(folder_, [this] { return now(); }));
  files_ = std::make_unique<Files>(folder_, *store_, options_, [this] { return now(); });
  ASSIGN_OR_RETURN(const std::vector<BatchObject> unfinished, store_->unfinished());
  for (const BatchObject& batch : unfinished) {
    files_->set_work_bytes(batch.id, folder_.work_bytes(batch.id));
  }
  return files_->refresh();
}

int64_t Service::now() const {
  const Nanos since = clock_.now() - began_.second;
  return began_.first + std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

void Service::start(const openai::ModelDirectory& models, RunnerOptions options) {
  const std::scoped_lock lock(mutex_);
  runner_ = std::make_shared<Runner>(folder_, *store_, *files_, options_, models, clock_,
                                     std::move(options));
}

void Service::request_stop() {
  if (const std::shared_ptr<Runner> running = runner()) {
    running->request_stop();
  }
}

void Service::stop() {
  std::shared_ptr<Runner> runner;
  {
    const std::scoped_lock lock(mutex_);
    runner = std::exchange(runner_, nullptr);
  }
  if (runner != nullptr) {
    runner->stop();
  }
}

std::shared_ptr<Runner> Service::runner() const {
  const std::scoped_lock lock(mutex_);
  return runner_;
}

std::string Service::render(BatchObject batch) const {
  const std::shared_ptr<Runner> running = runner();
  const BatchOutlook outlook = running == nullptr ? BatchOutlook() : running->look(batch);
  return batch_json(batch, outlook);
}

Result<FileObject> Service::input_of(std::string_view owner, std::string_view file_id) const {
  Result<FileObject> input = store_->file(owner, file_id);
  if (!input.ok()) {
    return Error{input.error().code, input.error().message, "input_file_id"};
  }
  return input;
}

Result<std::string> Service::create_batch(std::string_view owner, std::string_view body) {
  ASSIGN_OR_RETURN(BatchObject batch, parse_batch_request(body, {}));
  const Result<FileObject> input = input_of(owner, batch.input_file_id);
  if (!input.ok()) {
    return input.error();
  }
  if (input->purpose != kPurposeBatch) {
    return invalid_argument(
        fmt::format("the file '{}' has the purpose \"{}\"; a batch needs one that was uploaded "
                    "with the purpose \"batch\"",
                    shown(input->id), input->purpose),
        "input_file_id");
  }
  constexpr int64_t kMaxUnfinished = 1000;  // each is looked at every second
  ASSIGN_OR_RETURN(const int64_t unfinished, store_->unfinished_of(owner));
  if (unfinished >= kMaxUnfinished) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("{} batches of this key have not ended; wait for some, or cancel them",
                             unfinished),
                 ""};
  }
  batch.id = new_object_id("batch_");
  batch.owner = owner;
  batch.input_bytes = input->bytes;
  batch.created_at = now();
  batch.expires_at += batch.created_at;
  if (const Status linked = folder_.link_input(input->id, batch.id); !linked.ok()) {
    RETURN_IF_ERROR(input_of(owner, input->id));  // it was deleted meanwhile
    return linked.error();
  }
  if (const Status added = store_->add_batch(batch); !added.ok()) {
    folder_.remove_batch(batch.id);
    return added.error();
  }
  if (const std::shared_ptr<Runner> running = runner()) {
    running->wake();
  }
  return batch_json(batch, {});
}

Result<std::string> Service::batch(std::string_view owner, std::string_view id) {
  ASSIGN_OR_RETURN(BatchObject batch, store_->batch(owner, id));
  return render(std::move(batch));
}

Result<std::string> Service::cancel_batch(std::string_view owner, std::string_view id) {
  ASSIGN_OR_RETURN(BatchObject batch, store_->batch(owner, id));
  while (batch.state == BatchState::kValidating || batch.state == BatchState::kInProgress) {
    const BatchState from = std::exchange(batch.state, BatchState::kCancelling);
    batch.cancelling_at = now();
    ASSIGN_OR_RETURN(const bool changed, store_->change(batch, from));
    if (changed) {
      if (const std::shared_ptr<Runner> running = runner()) {
        running->cancel(id);
      }
      return render(std::move(batch));
    }
    ASSIGN_OR_RETURN(batch, store_->batch(owner, id));  // its state has changed meanwhile
  }
  if (batch.state == BatchState::kCancelling || batch.state == BatchState::kCancelled) {
    return render(std::move(batch));
  }
  return invalid_argument(fmt::format("the batch '{}' is {} and cannot be cancelled", shown(id),
                                      state_name(batch.state)));
}

Result<std::string> Service::batches(std::string_view owner, std::string_view query) {
  ASSIGN_OR_RETURN(const ListRange range, parse_batch_range(query));
  ASSIGN_OR_RETURN(ListPage<BatchObject> page, store_->batches(owner, range));
  std::vector<std::string> objects;
  std::vector<std::string> ids;
  for (BatchObject& batch : page.objects) {
    ids.push_back(batch.id);
    objects.push_back(render(std::move(batch)));
  }
  return list_json(objects, ids, page.has_more);
}

Result<std::string> Service::file(std::string_view owner, std::string_view id) {
  ASSIGN_OR_RETURN(const FileObject file, store_->file(owner, id));
  return file_json(file);
}

Result<std::string> Service::files(std::string_view owner, std::string_view query) {
  ASSIGN_OR_RETURN(const ListRange range, parse_file_range(query));
  ASSIGN_OR_RETURN(const ListPage<FileObject> page, store_->files(owner, range));
  std::vector<std::string> objects;
  std::vector<std::string> ids;
  for (const FileObject& file : page.objects) {
    ids.push_back(file.id);
    objects.push_back(file_json(file));
  }
  return list_json(objects, ids, page.has_more);
}

Result<std::string> Service::delete_file(std::string_view owner, std::string_view id) {
  RETURN_IF_ERROR(files_->remove(owner, id));
  return deleted_json(id);
}

std::string Service::metrics_text() const {
  std::string text;
  auto out = std::back_inserter(text);
  const auto family = [&](std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(out, "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  };
  const auto single = [&](std::string_view name, std::string_view help, int64_t value) {
    family(name, "gauge", help);
    fmt::format_to(out, "{} {}\n", name, value);
  };
  family("tandem_batches", "gauge", "Batches of /v1/batches by state.");
  const auto by_state = store_->batches_by_state();
  for (size_t i = 0; i < by_state.size(); ++i) {
    fmt::format_to(out, "tandem_batches{{state=\"{}\"}} {}\n", kBatchStates[i], by_state[i]);
  }
  const std::shared_ptr<Runner> running = runner();
  single("tandem_batches_paused", "Batches that cannot go on now; GET /v1/batches/ID says why.",
         running == nullptr ? 0 : running->paused());
  family("tandem_batch_lines_total", "counter", "Lines of batches answered since the start.");
  fmt::format_to(out, "tandem_batch_lines_total{{outcome=\"completed\"}} {}\n",
                 running == nullptr ? 0 : running->completed_lines());
  fmt::format_to(out, "tandem_batch_lines_total{{outcome=\"failed\"}} {}\n",
                 running == nullptr ? 0 : running->failed_lines());
  single("tandem_batch_storage_used_bytes", "Space taken by files and answers of batches.",
         files_->used_bytes());
  single("tandem_batch_storage_limit_bytes", "Space that they may take (--batch-storage).",
         options_.storage_bytes);
  return text;
}

}  // namespace tandem::batches
