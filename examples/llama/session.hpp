// One model and one context of llama.cpp, fed with reproducible random tokens; what the programs of this folder share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

namespace seriatim_llama {

// Ends the program with status 2.
[[noreturn]] void die(const std::string& message);

// `--name value` and `--flag` of a command line; a name that nobody asked for is refused by finish().
class Arguments {
 public:
  Arguments(int count, char** values);
  const std::string& positional() const { return positional_; }
  std::string text(const std::string& name, const std::string& otherwise);
  int number(const std::string& name, int otherwise, int least);
  bool flag(const std::string& name);
  void finish() const;

 private:
  std::string positional_;
  std::map<std::string, std::string> given_;
  std::map<std::string, bool> asked_;
};

struct SessionOptions {
  std::string model;
  std::string backend;  // a path for ggml_backend_load; empty: none
  int context = 0;      // tokens of each sequence that the cache must hold
  int ubatch = 128;     // tokens of one call, all sequences together
  int threads = 2;
  int sequences = 1;     // all are fed the same tokens
  bool unified = false;  // one pool of cells for all sequences
  llama_flash_attn_type flash = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  ggml_type cache_type = GGML_TYPE_F16;
  std::uint32_t seed = 1;
  ggml_backend_sched_eval_callback callback = nullptr;
  void* callback_data = nullptr;
};

// --backend --ubatch --threads --sequences --unified --flash --cache-type --seed, as above.
SessionOptions session_options(Arguments& arguments);

class Session {
 public:
  explicit Session(const SessionOptions& options);

  // Decodes the next `count` tokens of every sequence in one call.
  void feed(int count);
  // Decodes `count` tokens of every sequence in calls of as many as fit.
  void prefill(int count);
  // Puts random cells for positions 0..tokens-1 into the cache of sequence 0, as a restored state would; takes the
  // place of a prefill that nobody wants to wait for.
  void fill(int tokens);

  // Of the last token of a sequence in the last call.
  const float* logits(int sequence) const;
  int vocabulary() const { return vocabulary_; }
  int position() const { return position_; }  // of the next token
  int last_count() const { return last_count_; }
  const SessionOptions& options() const { return options_; }
  std::string metadata(const std::string& key) const;  // of the model; empty: it has none
  std::string architecture() const { return metadata("general.architecture"); }
  std::int64_t model_number(const std::string& key) const;  // under the architecture's name; -1: none
  llama_context* context() const { return context_.get(); }

 private:
  struct FreeModel {
    void operator()(llama_model* model) const { llama_model_free(model); }
  };
  struct FreeContext {
    void operator()(llama_context* context) const { llama_free(context); }
  };

  SessionOptions options_;
  std::unique_ptr<llama_model, FreeModel> model_;
  std::unique_ptr<llama_context, FreeContext> context_;
  int vocabulary_ = 0;
  int position_ = 0;
  int last_count_ = 0;
  std::uint32_t random_ = 0;
};

// "llama.cpp with ggml 0.25.3, devices CPU, SERIATIM"
std::string engine_name();

// What Seriatim's backend has computed in this process, as it says that itself; empty without it.
std::string backend_counters();

// Says to the backend that no evaluation callback looks at anything but the time: runs of nodes stay one.
void look_at_time_only();

}  // namespace seriatim_llama
