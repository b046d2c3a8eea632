// One client connection: reads requests, answers them one after the other, streams, notices when
// the client leaves. What is written waits in one place, so that a step's chunks leave in one
// gather write; what a stream's reader does not take is bounded. A client that closes its sending
// side while it waits counts as gone. Threads: the loop's only. Ownership: the loop and the pending
// operations share it.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "api/access_log.h"
#include "api/api_context.h"
#include "api/client_places.h"
#include "api/generation_job.h"
#include "api/http_message.h"
#include "api/http_parser.h"
#include "api/io_loop.h"
#include "api/routes.h"
#include "api/transport.h"
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

  // The request being answered.
  struct Answer {
    HttpRequest request;
    const Route* route = nullptr;
    RequestNames names;
    std::string tenant;
    ServiceGrant grant;  // of the API key
    Nanos started{0};
    int64_t request_bytes = 0;
    int64_t body_bytes_held = 0;  // in memory still
    int64_t response_bytes = 0;
    int status = 0;
    bool keep_alive = false;
    bool complete = false;  // all of it is in the output
    BodyFraming framing = BodyFraming::kLength;
  };

  void wait_readable();
  void on_readable();
  void on_read_end(const boost::system::error_code& error);
  void accept_bytes(std::string_view bytes);
  void handle(HttpParser::State state);
  void begin(HttpRequest request);
  void route_request();
  void begin_generation(openai::Endpoint endpoint);
  void start_job(Result<openai::GenerationRequest> parsed);
  void begin_stream();
  void end_job();
  void respond(HttpResponse response);
  void add_common_headers(HttpResponse& response) const;
  void record(std::string_view outcome);
  void refuse_unread(HttpResponse response);
  void count_held_bytes();
  void tick_reading(Nanos now);
  void on_written(const boost::system::error_code& error);
  void end_answer();
  void linger();
  void drop_job();

  Transport transport_;
  const ClientPlaces::Place place_;
  IoLoop& loop_;
  ApiContext& context_;
  HttpParser parser_;
  std::string client_;
  Phase phase_ = Phase::kReading;
  Answer answer_;
  std::unique_ptr<GenerationJob> job_;

  // Not given to the socket yet: bytes as they are, then stream text that still needs its chunk
  // frame.
  std::string raw_;
  std::string stream_;
  // Being written.
  std::string raw_out_;
  std::string frame_out_;
  std::string stream_out_;
  std::string end_out_;

  bool touched_ = false;
  bool writing_ = false;
  bool reading_ = false;     // a wait for readability is under way
  bool peer_ended_ = false;  // no more bytes will come
  bool parsing_aside_ = false;
  Nanos phase_since_{0};
  Nanos begun_at_{0};       // first byte of the request being read
  Nanos body_began_at_{0};  // end of its headers; 0: not there yet
  int64_t held_bytes_ = 0;  // as counted in HttpMetrics::request_bytes_held
  Nanos write_began_{0};
  Nanos last_output_{0};
};

}  // namespace tandem::api
