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
constexpr size_t kMaxWaitingBytes = 1 << 20;  // of an upload; then the client has to wait

}  // namespace

struct Connection::Incoming {
  std::shared_ptr<batches::Upload> upload;
  std::string waiting;    // has come and is not being written
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
  return incoming_ != nullptr && incoming_->waiting.size() > kMaxWaitingBytes;
}

// A refusal that needs no look at the body.
std::optional<HttpResponse> Connection::begin_batch_route() {
  if (auto refusal = refuse_without_folder(context_)) {
    return refusal;
  }
  if (!is_upload(answer_.request, *answer_.route)) {
    return std::nullopt;
  }
  Result<std::unique_ptr<batches::Upload>> upload =
      context_.options.batches->begin_upload(answer_.owner, answer_.request.header("content-type"));
  if (!upload.ok()) {
    return batch_error(upload.error(), context_);
  }
  incoming_ = std::make_shared<Incoming>();
  incoming_->upload = *std::move(upload);
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
      bytes + kCost, SideThreads::Bound::kApplies,
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
  body_held_.set(std::ssize(incoming_->waiting));
  if (state == HttpParser::State::kComplete) {
    static_cast<void>(parser_.take_body());
    incoming_->complete = true;
    begin_answer();
  }
  write_incoming();
}

void Connection::write_incoming() {
  Incoming& incoming = *incoming_;
  if (incoming.writing || (!incoming.complete && incoming.waiting.size() < kPieceBytes)) {
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
  body_held_.set(0);
  auto shared =
      std::make_shared<Work>(Work{.upload = incoming.upload,
                                  .piece = std::exchange(incoming.waiting, {}),
                                  .held = CountedBytes(context_.metrics.request_bytes_held, bytes),
                                  .last = incoming.complete,
                                  .response = {}});
  aside(
      bytes, SideThreads::Bound::kIgnored,
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
      },
      [this, shared] {
        if (incoming_ == nullptr) {
          loop_.dispose(
              std::exchange(shared->upload, nullptr));  // what it has written goes with it
        }
        end_incoming_piece(std::move(shared->response));
      });
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
      kPieceBytes, SideThreads::Bound::kApplies,
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
  outgoing_->reading = true;
  auto shared = std::make_shared<Work>(Work{.from = outgoing_});
  aside(
      kPieceBytes, SideThreads::Bound::kIgnored,
      [shared, max = std::min<int64_t>(kPieceBytes, outgoing_->left)] {
        shared->piece = shared->from->content.next(static_cast<size_t>(max));
      },
      [this, shared] {
        shared->from->reading = false;
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

// What was written of an upload that is not finished is removed beside the loop.
void Connection::drop_files() {
  if (incoming_ != nullptr) {
    loop_.dispose(std::exchange(incoming_, nullptr));
  }
  if (outgoing_ != nullptr) {
    loop_.dispose(std::exchange(outgoing_, nullptr));
  }
}

}  // namespace tandem::api
