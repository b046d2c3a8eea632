// What the HTTP server can be told, each default written here once. Times are durations; sizes are
// bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/api_keys.h"
#include "api/cors.h"
#include "api/http_parser.h"
#include "api/key_file.h"
#include "api/objectives.h"
#include "api/side_threads.h"
#include "api/tls.h"
#include "base/clock.h"
#include "batches/service.h"
#include "openai/error_body.h"
#include "openai/generation_request.h"

namespace tandem::api {

struct ServerLimits {
  HttpLimits http;
  openai::RequestLimits request;
  int32_t max_connections = 4096;  // more are answered 503 and closed
  // Backlog of one stream, apart from the piece being written; a reader further behind is cut off.
  size_t max_unsent_bytes = 1024 * 1024;
  // Of all answers together: unsent ones, and whole ones that are still being generated. Above it,
  // an answer that grows beyond max_small_answer_bytes gets 503; a stream with such a backlog is
  // cut off.
  int64_t max_answer_bytes_held = int64_t{512} << 20;
  size_t max_small_answer_bytes = 64 * 1024;
  size_t max_pipelined_bytes = 64 * 1024;               // sent ahead while an answer is under way
  int64_t max_request_bytes_held = int64_t{512} << 20;  // bodies of all requests, until parsed
  // Of all uploads together, on their way to the disk: from there on the server reads no more of
  // them until some is written, and refuses new ones at twice as much. New ones were read once by
  // then (64 KiB).
  int64_t max_upload_bytes_held = int64_t{64} << 20;
  int32_t max_connections_per_client = 0;                // of one address; 0: no limit
  Nanos idle_timeout = std::chrono::seconds(75);         // between requests
  Nanos crowded_idle_timeout = std::chrono::seconds(5);  // when 3 of 4 connections are taken
  Nanos header_timeout = std::chrono::seconds(15);  // from the first byte to the end of headers
  Nanos body_timeout = std::chrono::seconds(60);    // from there to the last byte
  Nanos write_timeout = std::chrono::seconds(60);   // for a write (of 256 KiB) to be taken
  Nanos crowded_write_timeout = std::chrono::seconds(5);  // when 3/4 of max_answer_bytes_held wait
  Nanos linger_timeout = std::chrono::seconds(2);         // for the client to read a last answer
  int32_t socket_send_buffer_bytes = 0;                   // 0: the system's choice
};

struct ServerOptions {
  // Changes behaviour.
  std::string host = "127.0.0.1";
  uint16_t port = 8000;               // 0: any free one, see Server::port()
  KeySources key_sources;             // of the next field
  std::vector<ApiKey> api_keys;       // as they were read at the start
  ServiceDefaults service;            // of requests that say nothing of class and SLO
  std::vector<Objective> objectives;  // names that stand for class, level and SLO
  TlsFiles tls;
  CorsOptions cors;
  openai::ErrorSettings errors;
  ServerLimits limits;
  Nanos retry_after =
      std::chrono::seconds(1);  // told to refused clients when the engine names no time
  Nanos keep_alive_comment =
      std::chrono::seconds(5);               // a comment in a stream that long without output
  std::string version = "unknown";           // of /version
  std::string commit;                        // likewise; empty: left out
  bool page = true;                          // whether / answers with the page
  batches::Service* batches = nullptr;       // files and batches; null: refused
  std::function<std::string()> config_json;  // of /v1/tandem/config; absent: {}
  // Parts of /v1/tandem/status, called on I/O threads: a list of what each model measures (absent:
  // []), and what the process uses (absent: {}).
  std::function<std::string()> models_json;
  std::function<std::string()> process_json;
  std::vector<std::function<std::string()>>
      metrics;                            // more text for /metrics; called on I/O threads
  std::function<int64_t()> unix_seconds;  // wall clock of "created"; absent: the system's

  std::function<std::chrono::local_seconds()>
      local_time;  // of chat templates; absent: the system's

  // Changes speed.
  int32_t io_threads = 1;
  SideThreadsOptions side;
  SideThreadsOptions disk;  // for files and batches
  // Longer bodies are parsed and tokenized, and longer pieces of answers written, beside the I/O
  // threads: a kilobyte of text takes up to a millisecond, a kilobyte of answer some microseconds.
  size_t inline_parse_bytes = 4 * 1024;
  size_t inline_answer_bytes = 128 * 1024;
  size_t inline_submit_bytes = 256 * 1024;  // likewise prompts given to the engine: tokens and text
  size_t inline_events = 1024;              // likewise the events of one answer
  Nanos tick = std::chrono::milliseconds(250);  // how often timeouts are looked at

  // Measures Server::take_longest_delivery(), which costs some system calls a step.
  bool measure_deliveries = false;
};

}  // namespace tandem::api
