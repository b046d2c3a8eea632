// The part of Connection that writes: one gather write at a time, and what follows the end of an
// answer.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <iterator>
#include <utility>

#include "api/connection.h"

namespace tandem::api {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::string_view kLastChunk = "0\r\n\r\n";
constexpr size_t kKeptCapacity = 64 * 1024;  // bigger buffers are given back between requests

}  // namespace

// A large text stays the string it is.
void Connection::append_output(std::string text) {
  constexpr size_t kLargeBytes = 64 * 1024;
  unsent_.set(unsent_.bytes() + std::ssize(text));
  if (text.size() < kLargeBytes) {
    stream_ += text;
    return;
  }
  if (!stream_.empty()) {
    ahead_bytes_ += stream_.size();
    ahead_.push_back(std::exchange(stream_, {}));
  }
  ahead_bytes_ += text.size();
  ahead_.push_back(std::move(text));
}

void Connection::flush() {
  touched_ = false;
  if (writing_ || phase_ == Phase::kClosed) {
    return;
  }
  raw_out_.swap(raw_);
  if (ahead_.empty()) {
    stream_out_.swap(stream_);
  } else {
    stream_out_ = std::move(ahead_.front());
    ahead_.pop_front();
    ahead_bytes_ -= stream_out_.size();
  }
  if (answer_.framing == BodyFraming::kChunked) {
    if (!stream_out_.empty()) {
      fmt::format_to(std::back_inserter(frame_out_), "{:x}\r\n", stream_out_.size());
      end_out_ += "\r\n";
    }
    if (answer_.complete && waiting_bytes() == 0) {
      end_out_ += kLastChunk;
      answer_.framing = BodyFraming::kLength;  // the frame is closed: nothing may follow
    }
  }
  if (raw_out_.empty() && stream_out_.empty() && end_out_.empty()) {
    return;
  }
  writing_ = true;
  slice_begin_ = 0;
  write_slice();
}

// Slice by slice, so that a write has a time limit however large an answer is, and a fast reader of
// a large answer does not hold up the others.
void Connection::write_slice() {
  constexpr size_t kSliceBytes = 256 * 1024;
  write_began_ = last_output_ = loop_.now();
  slice_end_ = slice_begin_ + std::min(stream_out_.size() - slice_begin_, kSliceBytes);
  net::Transport::Parts parts;
  if (slice_begin_ == 0) {
    parts[0] = asio::buffer(raw_out_);
    parts[1] = asio::buffer(frame_out_);
  }
  parts[2] = asio::buffer(stream_out_.data() + slice_begin_, slice_end_ - slice_begin_);
  if (slice_end_ == stream_out_.size()) {
    parts[3] = asio::buffer(end_out_);
  }
  transport_.async_write(parts,
                         [self = shared_from_this()](const error_code& error, size_t /*bytes*/) {
                           self->loop_.run_deliveries();
                           self->on_written(error);
                         });
}

void Connection::on_written(const error_code& error) {
  if (!error && phase_ != Phase::kClosed && slice_end_ < stream_out_.size()) {
    slice_begin_ = slice_end_;
    write_slice();
    return;
  }
  writing_ = false;
  unsent_.set(unsent_.bytes() - std::ssize(stream_out_));
  if (stream_out_.size() > kKeptCapacity) {
    loop_.dispose(std::exchange(stream_out_, {}));
  }
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
  if (!raw_.empty() || waiting_bytes() > 0 ||
      (answer_.complete && answer_.framing == BodyFraming::kChunked)) {
    flush();
  } else if (outgoing_ != nullptr) {
    read_outgoing();
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
  body_began_at_ = Nanos{0};  // the next request has clocks of its own
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
  forget_request();
  transport_.shutdown_send();
  wait_readable();
}

}  // namespace tandem::api
