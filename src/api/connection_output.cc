// The part of Connection that writes: one gather write at a time, and what follows the end of an
// answer.
#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <iterator>

#include "api/connection.h"

namespace tandem::api {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::string_view kLastChunk = "0\r\n\r\n";
constexpr size_t kKeptCapacity = 64 * 1024;  // bigger buffers are given back between requests

}  // namespace

void Connection::flush() {
  touched_ = false;
  if (writing_ || phase_ == Phase::kClosed) {
    return;
  }
  raw_out_.swap(raw_);
  stream_out_.swap(stream_);
  if (answer_.framing == BodyFraming::kChunked) {
    if (!stream_out_.empty()) {
      fmt::format_to(std::back_inserter(frame_out_), "{:x}\r\n", stream_out_.size());
      end_out_ += "\r\n";
    }
    if (answer_.complete) {
      end_out_ += kLastChunk;
      answer_.framing = BodyFraming::kLength;  // the frame is closed: nothing may follow
    }
  }
  if (raw_out_.empty() && stream_out_.empty() && end_out_.empty()) {
    return;
  }
  writing_ = true;
  write_began_ = last_output_ = loop_.now();
  const Transport::Parts parts = {asio::buffer(raw_out_), asio::buffer(frame_out_),
                                  asio::buffer(stream_out_), asio::buffer(end_out_)};
  transport_.async_write(parts,
                         [self = shared_from_this()](const error_code& error, size_t /*bytes*/) {
                           self->on_written(error);
                         });
}

void Connection::on_written(const error_code& error) {
  writing_ = false;
  context_.metrics.unsent_bytes -= std::ssize(stream_out_);
  for (std::string* part : {&raw_out_, &frame_out_, &stream_out_, &end_out_}) {
    part->clear();
  }
  if (phase_ == Phase::kClosed) {
    return;
  }
  if (error) {
    close("disconnected");
    return;
  }
  if (!raw_.empty() || !stream_.empty() ||
      (answer_.complete && answer_.framing == BodyFraming::kChunked)) {
    flush();
  } else if (phase_ == Phase::kAnswering && answer_.complete) {
    end_answer();
  }
}

void Connection::end_answer() {
  --context_.answering;
  const bool keep_alive = answer_.keep_alive && !peer_ended_;
  answer_ = Answer{};
  phase_ = Phase::kReading;
  phase_since_ = begun_at_ = loop_.now();
  if (!keep_alive) {
    linger();
    return;
  }
  for (std::string* part : {&raw_, &stream_, &raw_out_, &stream_out_}) {
    if (part->capacity() > kKeptCapacity) {
      part->shrink_to_fit();
    }
  }
  handle(parser_.feed({}));
  count_held_bytes();
  wait_readable();
}

// Closing while the client still sends would reset the connection and may destroy the answer on its
// way: the sending side is closed first, and what comes is thrown away until the client closes too.
void Connection::linger() {
  if (peer_ended_) {
    close("done");
    return;
  }
  phase_ = Phase::kLingering;
  phase_since_ = loop_.now();
  parser_.discard();
  count_held_bytes();
  transport_.shutdown_send();
  wait_readable();
}

}  // namespace tandem::api
