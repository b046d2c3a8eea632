// One client connection: reads requests, answers them one after the other, streams, notices when
// the client leaves. What is written waits in one place, so that a step's chunks leave in one
// gather write; what its reader does not take is counted and bounded. A request is refused by its
// headers where they are enough (path, method, key), before its body is in memory. Long bodies are
// parsed and long pieces of answers written on the side threads; meanwhile events of the generation
// wait here. Uploaded files go to the disk as they come, files are sent as they are read from it,
// a piece at a time. A client that closes its sending side while it waits counts as gone. Threads:
// the loop's only. Ownership: the loop, the pending operations and the jobs beside the loop share
// it.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/access_log.h"
#include "api/api_context.h"
#include "api/client_places.h"
#include "api/generation_job.h"
#include "api/http_message.h"
#include "api/http_parser.h"
#include "api/io_loop.h"
#include "api/routes.h"
#include "api/side_threads.h"
#include "base/counted_bytes.h"
#include "net/transport.h"
#include "request/request.h"

namespace tandem::api {

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ClientPlaces::Place place, IoLoop& loop,
             ApiContext& context);
  ~Connection();

  void start();
  // True the first time since the last flush().
  [[nodiscard]] bool touch() { return !std::exchange(touched_, true); }
  // Events of the generation under way; what comes of them is written by flush().
  void take(size_t prompt, std::span<TokenEvent> events);
  void flush();
  // Looks at timeouts and sends keep-alive comments.
  void tick(Nanos now);
  // Now. A generation under way is cancelled and logged with `outcome`.
  void close(std::string_view outcome);

 private:
  enum class Phase : uint8_t { kReading, kAnswering, kLingering, kClosed };

  // The request being answered, or whose headers were accepted and whose body comes.
  struct Answer {
    HttpRequest request;  // without its body
    const Route* route = nullptr;
    RequestNames names;
    std::string tenant;
    ServiceGrant grant;  // of the API key
    std::string owner;   // of files and batches
    Nanos started{0};
    int64_t request_bytes = 0;
    int64_t response_bytes = 0;
    int status = 0;
    bool keep_alive = false;
    bool streams = false;
    bool complete = false;  // all of it is in the output
    BodyFraming framing = BodyFraming::kLength;
  };

  void wait_readable();
  void on_readable();
  void on_read_end(const boost::system::error_code& error);
  void accept_bytes(std::string_view bytes);
  void handle(HttpParser::State state);
  bool accept_head();
  std::optional<HttpResponse> refuse_by_head();
  void begin_answer();
  void route_request(std::string body);
  void answer_aside(std::string body);
  // Files (connection_files.cc).
  struct Incoming;
  struct Outgoing;
  std::optional<HttpResponse> begin_batch_route();
  void answer_from_disk(std::string body);
  void receive(HttpParser::State state);
  void write_incoming();
  void tick_incoming(Nanos now);
  void end_incoming_piece(std::optional<HttpResponse> response);
  void begin_download();
  void read_outgoing();
  void send_piece(Result<std::string> piece);
  void drop_files();
  void begin_generation(std::string body);
  void start_job(Preparation prepared);
  void submit_aside(PreparedGeneration prepared, int64_t bytes);
  void begin_job(SubmittedGeneration submitted);
  void begin_stream();
  void aside(const IoLoop::JobTerms& terms, std::function<void()> work, std::function<void()> done);
  struct Delivery;
  using HeldEvents = std::vector<std::pair<size_t, std::vector<TokenEvent>>>;  // by prompt
  static void hold(size_t prompt, std::span<TokenEvent> events, HeldEvents& held);
  void deliver_aside(int64_t bytes, HeldEvents events);
  void end_delivery(Delivery& delivery);
  void take_held();
  void dispose(HeldEvents held);
  bool cut_slow_reader();
  void end_job();
  bool keep_within_memory();
  HttpResponse refuse_for_memory();
  void respond(HttpResponse response);
  [[nodiscard]] bool answers_are_crowded() const;
  void add_common_headers(HttpResponse& response) const;
  void record(std::string_view outcome);
  void refuse_unread(HttpResponse response);
  void forget_request();
  void tick_reading(Nanos now);
  [[nodiscard]] bool holds_enough() const;
  [[nodiscard]] bool incoming_is_full() const;
  [[nodiscard]] bool uploads_are_crowded() const;
  void append_output(std::string text);
  [[nodiscard]] size_t waiting_bytes() const { return stream_.size() + ahead_bytes_; }
  void write_slice();
  void on_written(const boost::system::error_code& error);
  void end_answer();
  void linger();
  void drop_job();

  net::Transport transport_;
  const ClientPlaces::Place place_;
  IoLoop& loop_;
  ApiContext& context_;
  HttpParser parser_;
  std::string client_;     // address and port
  std::string requester_;  // with whom side threads are shared fairly: the key, else the address
  Phase phase_ = Phase::kReading;
  Answer answer_;
  bool status_logged_ = false;  // an answer of the status route stands in the access log
  std::unique_ptr<GenerationJob> job_;
  std::vector<uint64_t> tags_;  // of the generation, by prompt
  // A job of this connection waits or runs beside the loop.
  std::optional<IoLoop::Ticket> ticket_;
  bool job_is_aside_ = false;
  HeldEvents events_held_;              // come meanwhile
  std::shared_ptr<Incoming> incoming_;  // a file that is being uploaded
  std::shared_ptr<Outgoing> outgoing_;  // one that is being downloaded

  // Not given to the socket yet: heads, then large pieces of text, then small ones. Streamed text
  // still needs its chunk frame.
  std::string raw_;
  std::deque<std::string> ahead_;
  size_t ahead_bytes_ = 0;
  std::string stream_;
  // Being written; stream_out_ slice by slice.
  std::string raw_out_;
  std::string frame_out_;
  std::string stream_out_;
  std::string end_out_;
  size_t slice_begin_ = 0;
  size_t slice_end_ = 0;
  CountedBytes unsent_;  // of ahead_, stream_ and stream_out_
  CountedBytes kept_;    // text so far of a whole answer in the making

  bool touched_ = false;
  bool writing_ = false;
  bool reading_ = false;     // a wait for readability is under way
  bool peer_ended_ = false;  // no more bytes will come
  Nanos phase_since_{0};
  Nanos begun_at_{0};       // first byte of the request being read
  Nanos body_began_at_{0};  // end of its headers; 0: not there yet
  CountedBytes body_held_;  // body bytes that the parser holds
  Nanos write_began_{0};
  Nanos last_output_{0};
};

}  // namespace tandem::api
