// The part of Connection that takes and sends files: piece by piece, so that neither memory nor
// the I/O thread is held up by their size. Pieces are written and read beside the loop, one at a
// time.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/batch_routes.h"
#include "api/connection.h"
#include "base/log.h"
#include "batches/objects_json.h"
#include "batches/service.h"

namespace tandem::api {

namespace {

constexpr size_t kPieceBytes = 256 * 1024;
constexpr size_t kSmallPieceBytes = 16 * 1024;
constexpr size_t kMaxWaitingBytes = 1 << 20;  // of an upload; then the client has to wait
constexpr IoLoop::Pool kDisk = IoLoop::Pool::kDisk;

}  // namespace

struct Connection::Incoming {
  std::shared_ptr<batches::Upload> upload;
  CountedBytes held;      // of waiting
  std::string waiting{};  // has come and is not being written
  bool writing = false;   // a piece is being written
  bool complete = false;  // all of it has come
  size_t in_time = 0;     // bytes since its time was counted anew
};

struct Connection::Outgoing {
  batches::ContentReader content;
  int64_t left = 0;
  bool reading = false;
};

bool Connection::incoming_is_full() const {
  return incoming_ != nullptr &&
         (incoming_->waiting.size() > kMaxWaitingBytes || uploads_are_crowded());
}

bool Connection::uploads_are_crowded() const {
  return context_.metrics.upload_bytes_held >= context_.options.limits.max_upload_bytes_held;
}

// A refusal that needs no look at the body.
std::optional<HttpResponse> Connection::begin_batch_route() {
  if (auto refusal = refuse_without_folder(context_)) {
    return refusal;
  }
  if (!is_upload(answer_.request, *answer_.route)) {
    return std::nullopt;
  }
  const HttpLimits& limits = context_.options.limits.http;
  if (announced_body_bytes(answer_.request) > limits.max_streamed_bytes) {
    return batch_error(context_.options.batches->too_large(), context_);
  }
  // A connection reads once before it knows what comes.
  if (context_.metrics.upload_bytes_held >= 2 * context_.options.limits.max_upload_bytes_held) {
    return refuse({ErrorCode::kUnavailable,
                   "uploads that wait for the disk fill the server's memory for them; try again "
                   "later",
                   ""},
                  "request_memory", context_);
  }
  Result<std::unique_ptr<batches::Upload>> upload =
      context_.options.batches->begin_upload(answer_.owner, answer_.request.header("content-type"));
  if (!upload.ok()) {
    return batch_error(upload.error(), context_);
  }
  incoming_ = std::make_shared<Incoming>(Incoming{
      .upload = *std::move(upload), .held = CountedBytes(context_.metrics.upload_bytes_held)});
  parser_.stream_body();
  return std::nullopt;
}

// Rows are read and written beside the loop: they wait for the disk.
void Connection::answer_from_disk(std::string body) {
  struct Work {
    HttpRequest request;
    CountedBytes held;
    HttpResponse response;
  };
  constexpr int64_t kCost = 16 * 1024;  // beside the body's bytes
  const int64_t bytes = std::ssize(body);
  auto shared =
      std::make_shared<Work>(Work{.request = answer_.request,
                                  .held = CountedBytes(context_.metrics.request_bytes_held, bytes),
                                  .response = {}});
  shared->request.body = std::move(body);
  aside(
      {.pool = kDisk, .cost = bytes + kCost},
      [shared, route = answer_.route, owner = answer_.owner, &context = context_] {
        shared->response = answer_batch_route(shared->request, *route, owner, context);
        std::string().swap(shared->request.body);
        shared->held.set(0);
      },
      [this, shared] { respond(std::move(shared->response)); });
  if (!ticket_) {
    loop_.dispose(std::move(shared));
  }
}

void Connection::receive(HttpParser::State state) {
  if (body_began_at_ == Nanos{0}) {
    body_began_at_ = loop_.now();
  }
  std::string piece = parser_.take_piece();
  answer_.request_bytes += std::ssize(piece);
  incoming_->in_time += piece.size();
  if (incoming_->in_time >= kPieceBytes) {  // its time limit is for each such piece
    incoming_->in_time = 0;
    body_began_at_ = loop_.now();
  }
  incoming_->waiting += piece;
  incoming_->held.set(std::ssize(incoming_->waiting));
  if (state == HttpParser::State::kComplete) {
    static_cast<void>(parser_.take_body());
    incoming_->complete = true;
    begin_answer();
  }
  write_incoming();
}

// Time in which the server itself does not read does not count against the client. Uploads that
// stopped because all of them together hold enough go on from here: nothing else wakes them.
void Connection::tick_incoming(Nanos now) {
  if (incoming_is_full()) {
    body_began_at_ = now;
  }
  write_incoming();
  wait_readable();
}

void Connection::write_incoming() {
  Incoming& incoming = *incoming_;
  // Small pieces make room where all uploads together hold enough.
  const bool worth_writing = incoming.complete || incoming.waiting.size() >= kPieceBytes ||
                             (!incoming.waiting.empty() && uploads_are_crowded());
  if (incoming.writing || !worth_writing) {
    return;
  }
  struct Work {
    std::shared_ptr<batches::Upload> upload;
    std::string piece;
    CountedBytes held;
    bool last = false;
    std::optional<HttpResponse> response;
  };
  incoming.writing = true;
  const int64_t bytes = std::ssize(incoming.waiting);
  // The last piece waits for the whole file to be on the disk.
  const int64_t cost =
      incoming.complete ? std::max(bytes, context_.options.disk.max_short_cost + 1) : bytes;
  incoming.held.set(0);
  auto shared =
      std::make_shared<Work>(Work{.upload = incoming.upload,
                                  .piece = std::exchange(incoming.waiting, {}),
                                  .held = CountedBytes(context_.metrics.upload_bytes_held, bytes),
                                  .last = incoming.complete,
                                  .response = {}});
  aside(
      {.pool = kDisk, .cost = cost, .bound = SideThreads::Bound::kIgnored},
      [shared, &context = context_] {
        const Status written = shared->upload->write(shared->piece);
        std::string().swap(shared->piece);
        shared->held.set(0);
        if (!written.ok()) {
          shared->response = batch_error(written.error(), context);
        } else if (shared->last) {
          const Result<batches::FileObject> file = shared->upload->finish();
          shared->response = file.ok() ? HttpResponse{.body = batches::file_json(*file)}
                                       : batch_error(file.error(), context);
        }
        shared->upload.reset();  // here: the last one removes what it has written
      },
      [this, shared] { end_incoming_piece(std::move(shared->response)); });
}

void Connection::end_incoming_piece(std::optional<HttpResponse> response) {
  if (incoming_ == nullptr) {
    return;  // it was refused meanwhile
  }
  incoming_->writing = false;
  if (!response) {
    body_began_at_ = phase_ == Phase::kReading ? loop_.now() : body_began_at_;
    write_incoming();
    wait_readable();
    return;
  }
  if (phase_ == Phase::kReading) {  // it is refused before all of it has come
    refuse_unread(std::move(*response));
    wait_readable();
    return;
  }
  drop_files();
  respond(std::move(*response));
}

void Connection::begin_download() {
  struct Work {
    std::optional<Result<batches::ContentReader>> content;
  };
  auto shared = std::make_shared<Work>();
  aside(
      {.pool = kDisk, .cost = kPieceBytes},
      [shared, owner = answer_.owner, id = id_in_path(*answer_.route, answer_.request.path),
       &service = *context_.options.batches] {
        shared->content.emplace(service.content(owner, id));
      },
      [this, shared] {
        if (!shared->content->ok()) {
          respond(batch_error(shared->content->error(), context_));
          return;
        }
        batches::ContentReader content = *std::move(*shared->content);
        const int64_t bytes = content.bytes();
        HttpResponse head{.content_type = "application/octet-stream"};
        head.headers.emplace_back("Content-Length", fmt::format("{}", bytes));
        answer_.status = head.status;
        answer_.keep_alive = answer_.keep_alive && !context_.draining && !peer_ended_;
        answer_.framing = BodyFraming::kLength;
        add_common_headers(head);
        // The length is among the headers above.
        raw_ += response_head(head, BodyFraming::kToClose, answer_.keep_alive);
        outgoing_ = std::make_shared<Outgoing>(Outgoing{
            .content = std::move(content), .left = answer_.request.method == "HEAD" ? 0 : bytes});
        read_outgoing();
      });
}

void Connection::read_outgoing() {
  if (outgoing_->reading) {
    return;
  }
  if (outgoing_->left == 0) {
    drop_files();
    answer_.complete = true;
    record("done");
    flush();
    if (!writing_) {  // nothing was left to write
      end_answer();
    }
    return;
  }
  struct Work {
    std::shared_ptr<Outgoing> from;
    Result<std::string> piece = std::string();
  };
  // Pieces that slow readers leave unread must not fill the memory for answers.
  const size_t piece = answers_are_crowded() ? kSmallPieceBytes : kPieceBytes;
  outgoing_->reading = true;
  auto shared = std::make_shared<Work>(Work{.from = outgoing_});
  aside(
      {.pool = kDisk, .cost = kPieceBytes, .bound = SideThreads::Bound::kIgnored},
      [shared, max = std::min(static_cast<int64_t>(piece), outgoing_->left)] {
        shared->piece = shared->from->content.next(static_cast<size_t>(max));
        shared->from.reset();  // here: the last one closes the file
      },
      [this, shared] {
        outgoing_->reading = false;
        send_piece(std::move(shared->piece));
      });
}

void Connection::send_piece(Result<std::string> piece) {
  if (!piece.ok() || piece->empty()) {
    log::error("a file cannot be sent to its end: {}",
               piece.ok() ? "it is shorter than it was" : piece.error().message);
    close("failed");
    return;
  }
  outgoing_->left -= std::ssize(*piece);
  answer_.response_bytes += std::ssize(*piece);
  append_output(*std::move(piece));
  flush();
}

// Files are closed, and what was written of an unfinished upload is removed, on the disk threads:
// jobs give up their references there, and so does this. Only at the end of the server, when these
// threads have stopped, it happens on the loop.
void Connection::drop_files() {
  if (incoming_ != nullptr) {
    loop_.dispose(std::exchange(incoming_, nullptr), kDisk);
  }
  if (outgoing_ != nullptr) {
    loop_.dispose(std::exchange(outgoing_, nullptr), kDisk);
  }
}

}  // namespace tandem::api
