#include "loadgen/load.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "loadgen/request_body.h"
#include "loadgen/url.h"

namespace tandem::loadgen {
namespace {

LoadStream stream(std::vector<RequestGroup> groups, std::vector<std::string> models) {
  LoadStream result;
  result.options.requests = 200;
  result.options.arrivals.rate_per_s = 10;
  result.options.input = workload::Lengths::fixed(8);
  result.options.output = workload::Lengths::fixed(4);
  for (size_t i = 0; i < groups.size(); ++i) {
    result.options.shares.push_back(1);
  }
  result.groups = std::move(groups);
  result.models = std::move(models);
  return result;
}

TEST(Load, GroupsOfStreamsAreNumberedAndGetNamesThatDiffer) {
  const Load load = *make_load(
      {stream({{.name = "a"}, {.name = "b"}}, {"m"}), stream({{.name = "a"}}, {"n", "m"})}, 1);
  ASSERT_EQ(load.groups.size(), 3);
  EXPECT_EQ(load.groups[2].name, "a 2");
  EXPECT_EQ(load.models.size(), 2);
  int64_t counts[3] = {};
  for (const LoadRequest& request : load.requests) {
    ++counts[request.group];
  }
  EXPECT_EQ(counts[0] + counts[1], 200);
  EXPECT_NEAR(static_cast<double>(counts[0]), 100, 35);
  EXPECT_EQ(counts[2], 200);
}

TEST(Load, AStreamOfTasksAsksEachBeforeItAsksOneAgain) {
  const std::string line =
      R"(, "task": "a", "messages": [{"role": "user", "content": "?"}], "checker": "exact", )"
      R"("expected": "x"})";
  std::string file;
  for (const char* id : {"a-0", "a-1", "a-2", "a-3"}) {
    file += std::string(R"({"version": 1, "id": ")") + id + "\"" + line + "\n";
  }
  LoadStream tasks = stream({{.name = "t"}}, {"m"});
  tasks.options.requests = 12;
  tasks.tasks = std::make_shared<const std::vector<AnswerTask>>(*parse_tasks(file, "test"));
  const Load load = *make_load({tasks, stream({{.name = "a"}}, {"m"})}, 3);
  std::vector<std::string> asked;
  for (const LoadRequest& request : load.requests) {
    if (request.task != nullptr) {
      EXPECT_EQ(request.group, 0);
      EXPECT_TRUE(request.plan.prompt.empty());
      asked.push_back(request.task->id);
    }
  }
  ASSERT_EQ(asked.size(), 12U);
  EXPECT_EQ(std::set<std::string>(asked.begin(), asked.begin() + 4).size(), 4U);
  EXPECT_TRUE(std::equal(asked.begin(), asked.begin() + 8, asked.begin() + 4));
  const std::vector<std::string> before = asked;
  EXPECT_EQ(make_load({tasks}, 3)->requests[0].task->id, before[0])
      << "the same seed, another order";
}

TEST(Load, GoodputTargetsAreMillisecondsOrARule) {
  const Goodput goodput = *parse_goodput({"ttft:250", "tpot:40.5", "e2el:9000"});
  EXPECT_EQ(goodput.ttft->target(100000), std::chrono::milliseconds(250));
  EXPECT_EQ(*goodput.tpot, std::chrono::microseconds(40500));
  const Goodput rule = *parse_goodput({"ttft:500ms+2ms/tok,max=8s"});
  EXPECT_EQ(rule.ttft->target(10), std::chrono::milliseconds(500));
  EXPECT_EQ(rule.ttft->target(1000), std::chrono::seconds(2));
  EXPECT_FALSE(parse_goodput({}).value().any());
  for (const char* text : {"ttft", "ttft:", "tpot:x", "itl:5", "tpot:-1", "tpot:nan", "e2el:0"}) {
    EXPECT_FALSE(parse_goodput({text}).ok()) << text;
  }
}

TEST(Load, AddressesAreReadAndBadOnesNamed) {
  const Url url = *parse_url("http://[::1]:8080/proxy/");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, 8080);
  EXPECT_EQ(url.path, "/proxy");
  EXPECT_EQ(url.authority(), "[::1]:8080");
  EXPECT_EQ(parse_url("http://host")->port, 80);
  EXPECT_EQ(parse_url("https://host/v1")->port, 443);
  EXPECT_EQ(parse_url("https://host:8443")->text(), "https://host:8443");
  for (const char* text :
       {"", "host:80", "https://", "ftp://x", "http://", "http://h:0", "http://h:99999",
        "http://h:8x", "http://[::1", "http://a b", "http://h\r\nX: y"}) {
    EXPECT_FALSE(parse_url(text).ok()) << text;
  }
}

TEST(Load, HeadersCannotSmuggleLines) {
  EXPECT_EQ(*header_line("X-A: b"), "X-A: b\r\n");
  for (const char* text : {"", "no colon", ": x", "a b: c", "a: b\r\nc: d", "a: b\nc"}) {
    EXPECT_FALSE(header_line(text).ok()) << text;
  }
}

TEST(Load, BodiesCarryWhatTheirGroupAndEndpointSay) {
  const Load load = *make_load(
      {stream({{.name = "x", .service_tier = "flex", .priority = 3, .headers = "X-A: b\r\n"}},
              {"m"})},
      1);
  EndpointOptions endpoint;
  endpoint.url = *parse_url("http://h:1/p");
  endpoint.api_key = "k";
  endpoint.extra_body = {{"temperature", 0.5}};
  PromptUnits units;
  units.units = {" a"};
  const std::string request = generation_request(endpoint, load, load.requests[0], units);
  const size_t body_at = request.find("\r\n\r\n") + 4;
  const auto body = nlohmann::json::parse(request.substr(body_at));
  EXPECT_TRUE(request.starts_with("POST /p/v1/completions HTTP/1.1\r\nHost: h:1\r\n"));
  EXPECT_NE(request.find("\r\nAuthorization: Bearer k\r\n"), std::string::npos);
  EXPECT_NE(request.find("\r\nX-A: b\r\n"), std::string::npos);
  EXPECT_EQ(body["prompt"], "a a a a a a a a");
  EXPECT_EQ(body["max_tokens"], 4);
  EXPECT_EQ(body["service_tier"], "flex");
  EXPECT_EQ(body["priority"], 3);
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  endpoint.endpoint = Endpoint::kChat;
  const std::string chat = generation_request(endpoint, load, load.requests[0], units);
  EXPECT_EQ(nlohmann::json::parse(chat.substr(chat.find("\r\n\r\n")))["messages"][0]["content"],
            "a a a a a a a a");
}

TEST(Load, TargetsAndTheWishForAnExplanationStandInTheBody) {
  RequestGroup group{.name = "x", .service_tier = "priority"};
  group.slo = {.ttft = *parse_ttft_rule("500ms+2ms/tok,max=8s"),
               .tpot = std::chrono::milliseconds(50)};
  group.explain = true;
  const Load load = *make_load({stream({group}, {"m"})}, 1);
  EndpointOptions endpoint;
  endpoint.url = *parse_url("http://h:1");
  PromptUnits units;
  units.units = {" a"};
  const std::string request = generation_request(endpoint, load, load.requests[0], units);
  const auto body = nlohmann::json::parse(request.substr(request.find("\r\n\r\n")));
  EXPECT_EQ(body["slo"]["ttft"], "500ms+2ms/tok,max=8s");
  EXPECT_EQ(body["slo"]["tpot"], "50ms");
  EXPECT_EQ(body["tandem"]["explain"], true);
}

}  // namespace
}  // namespace tandem::loadgen
