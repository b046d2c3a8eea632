#include "node/option_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kernels/choice.h"
#include "options/option_json.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/sarathi.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

std::string set(NodeOptions& options, std::string_view name, const OptionValue& value) {
  const OptionTable table = node_option_table(options);
  const auto found = std::ranges::find(table, name, &OptionDescriptor::name);
  if (found == table.end()) {
    return "there is no such option";
  }
  const Status status = set_option(*found, value);
  return status.ok() ? "" : status.error().message;
}

nlohmann::json json_of(NodeOptions options) {
  nlohmann::ordered_json json;
  write_options(node_option_table(options), json);
  return nlohmann::json::parse(json.dump());
}

TEST(NodeOptionTable, EachOptionHasOneNameAKeyAHelpAndAGroup) {
  NodeOptions options;
  std::set<std::string> keys;
  for (const OptionDescriptor& option : node_option_table(options)) {
    EXPECT_TRUE(keys.insert(config_key(option)).second) << option.name;
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_FALSE(option.group.empty()) << option.name;
  }
  EXPECT_TRUE(keys.contains("offload_below")) << "of a policy";
}

TEST(NodeOptionTable, SetsWhatTheNodeIsTold) {
  NodeOptions options;
  EXPECT_EQ(set(options, "dtype", "float"), "");
  EXPECT_EQ(options.dtype, ElementType::kF32);
  EXPECT_EQ(set(options, "dtype", "auto"), "");
  EXPECT_FALSE(options.dtype.has_value());
  EXPECT_EQ(set(options, "max-model-len", "4K"), "");
  EXPECT_EQ(options.max_model_len, 4096);
  EXPECT_EQ(set(options, "numa", "0,2-3"), "");
  EXPECT_EQ(options.device.numa.nodes, (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(json_of(options)["numa"], "0,2-3");
  EXPECT_EQ(set(options, "hop-patience", "20ms"), "");
  EXPECT_EQ(options.hop_patience, 20ms);
  EXPECT_EQ(set(options, "no-vllm-metrics", true), "");
  EXPECT_FALSE(options.vllm_metrics);
  EXPECT_EQ(set(options, "offload-below", "40"), "");
  EXPECT_EQ(options.policy_options[kOffloadBelow], 40);
}

TEST(NodeOptionTable, KernelsAreAFamilySeveralOrWhatIsMeasured) {
  NodeOptions options;
  EXPECT_EQ(json_of(options)["isa"], "auto");
  EXPECT_EQ(set(options, "isa", "avx2:8,avx512"), "");
  ASSERT_TRUE(options.device.isa.has_value());
  EXPECT_EQ(options.device.isa->isa, kernels::Isa::kAvx512);
  EXPECT_EQ(json_of(options)["isa"], "avx2:8,avx512");
  EXPECT_EQ(set(options, "isa", "sse").find("--isa: unknown instruction set \"sse\"; known: ref, "),
            0U);
  EXPECT_NE(set(options, "isa", "avx2,avx512").find("names no kernels"), std::string::npos);
  EXPECT_TRUE(options.device.isa.has_value()) << "a refused value changes nothing";
  EXPECT_EQ(set(options, "isa", "auto"), "");
  EXPECT_FALSE(options.device.isa.has_value());
}

TEST(NodeOptionTable, RangesAreCheckedAtBothEnds) {
  NodeOptions options;
  int numbers = 0;
  for (const OptionDescriptor& option : node_option_table(options)) {
    const OptionRange& range = option.value.range;
    for (const std::string& name : range.names) {
      EXPECT_TRUE(option.value.set(name).ok()) << option.name << " " << name;
    }
    EXPECT_TRUE(range.names.empty() || !option.value.set("none of them").ok()) << option.name;
    if (option.value.kind != OptionKind::kNumber) {
      continue;
    }
    for (const auto& [bound, beyond] : {std::pair(range.min, -1), std::pair(range.max, 1)}) {
      if (const auto* whole = std::get_if<int64_t>(&bound)) {
        EXPECT_TRUE(option.value.set(*whole).ok()) << option.name << " " << *whole;
        EXPECT_FALSE(option.value.set(*whole + beyond).ok()) << option.name << " " << *whole;
        ++numbers;
      }
    }
  }
  EXPECT_GT(numbers, 20);
}

TEST(NodeOptionTable, OptionsOfPoliciesHaveTheirRanges) {
  NodeOptions options;
  EXPECT_EQ(set(options, "offload-below", "101"),
            "--offload-below: '101' is not a whole number of 0 to 100 percent");
  EXPECT_EQ(set(options, "sarathi-token-budget", "0"), "") << "it is measured";
  EXPECT_NE(set(options, "piggyback-token-budget", "0"), "");
  EXPECT_EQ(set(options, "policy", "fifo").find("--policy: unknown policy 'fifo' (known: auto, "),
            0U);
  EXPECT_EQ(set(options, "policy", "lanes"), "");
}

TEST(NodeOptionTable, WrongValuesNameTheFlag) {
  NodeOptions options;
  for (const auto& [name, value] :
       {std::pair("dtype", "half"), std::pair("max-model-len", "4Q"), std::pair("numa", "x"),
        std::pair("max-num-seqs", "65537"), std::pair("gpu-memory-utilization", "1.5"),
        std::pair("host-memory", "some"), std::pair("time-model", "guess"),
        std::pair("admission", "perhaps"), std::pair("block-size", "-1"),
        std::pair("sarathi-token-budget", "x")}) {
    EXPECT_TRUE(set(options, name, value).starts_with(std::string("--") + name + ": ")) << name;
  }
}

TEST(NodeOptionTable, ARecordBringsTheRunsOptionsBack) {
  NodeOptions recorded;
  recorded.policy = "sarathi";
  recorded.policy_options[kSarathiTokenBudget] = 0;
  recorded.policy_options[kOnloadAbove] = 77;
  recorded.dtype = ElementType::kBF16;
  recorded.kv_dtype = ElementType::kF32;
  recorded.max_model_len = 512;
  recorded.max_num_seqs = 9;
  recorded.max_num_batched_tokens = 100;
  recorded.block_tokens = 16;
  recorded.kv_blocks = 40;
  recorded.memory_bytes = 123456;
  recorded.host_memory_bytes = 789;
  recorded.group_stages = 2;
  recorded.seed = UINT64_MAX;
  recorded.admission = AdmissionMode::kOff;
  recorded.prefix_caching = PrefixCaching::kOff;
  recorded.profile.model = latency::TimeModel::kTable;
  recorded.max_queue = 3;  // not of the run
  NodeOptions replayed;
  const Status read = read_recorded_options(json_of(recorded), node_option_table(replayed));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(replayed.max_queue, NodeOptions{}.max_queue);
  recorded.max_queue = replayed.max_queue;
  EXPECT_EQ(json_of(replayed), json_of(recorded));
}

// The head of a record of version 0.1: options that came later are not in it.
TEST(NodeOptionTable, AnEarlyRecordIsRead) {
  const auto config = nlohmann::json::parse(
      R"({"policy":"piggyback","dtype":"float32","kv_cache_dtype":"bfloat16","max_model_len":512,)"
      R"("max_num_seqs":8,"max_num_batched_tokens":64,"block_size":16,"kv_blocks":40,)"
      R"("prefix_caching":"on","seed":7,"memory_bytes":1000,"group_stages":4,"offload_below":30})");
  NodeOptions options;
  const Status read = read_recorded_options(config, node_option_table(options));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(options.policy, "piggyback");
  EXPECT_EQ(options.dtype, ElementType::kF32);
  EXPECT_EQ(options.policy_options[kOffloadBelow], 30);
  EXPECT_EQ(options.policy_options[kOnloadAbove], kOnloadAbove.default_value);
  for (const char* key : {"policy", "dtype", "kv_blocks", "seed"}) {
    nlohmann::json broken = config;
    broken.erase(key);
    EXPECT_FALSE(read_recorded_options(broken, node_option_table(options)).ok()) << key;
    broken[key] = nlohmann::json::array();
    EXPECT_FALSE(read_recorded_options(broken, node_option_table(options)).ok()) << key;
  }
}

}  // namespace
}  // namespace tandem
