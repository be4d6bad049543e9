#include "session.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state.hpp"

namespace seriatim_llama {

void die(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(2);
}

Arguments::Arguments(int count, char** values) {
  for (int i = 1; i < count; ++i) {
    const std::string word = values[i];
    if (word.rfind("--", 0) != 0) {
      if (!positional_.empty()) die("'" + word + "' is one model too many");
      positional_ = word;
    } else if (i + 1 < count && std::string_view(values[i + 1]).rfind("--", 0) != 0) {
      given_[word.substr(2)] = values[++i];
    } else {
      given_[word.substr(2)] = "";
    }
  }
}

std::string Arguments::text(const std::string& name, const std::string& otherwise) {
  asked_[name] = true;
  const auto found = given_.find(name);
  return found == given_.end() ? otherwise : found->second;
}

int Arguments::number(const std::string& name, int otherwise, int least) {
  const std::string given = text(name, std::to_string(otherwise));
  char* end = nullptr;
  const long value = std::strtol(given.c_str(), &end, 10);
  if (given.empty() || *end != '\0' || value < least || value > 1 << 24) {
    die("--" + name + " must be a number of at least " + std::to_string(least) + ", not '" + given + "'");
  }
  return static_cast<int>(value);
}

bool Arguments::flag(const std::string& name) {
  const std::string given = text(name, "no");
  if (given != "no" && !given.empty()) die("--" + name + " takes no value; '" + given + "' must stand before it");
  return given.empty();
}

void Arguments::finish() const {
  for (const auto& [name, value] : given_) {
    if (asked_.count(name) == 0) die("there is no --" + name);
  }
}

namespace {

ggml_type type_named(const std::string& name) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const char* known = ggml_type_name(static_cast<ggml_type>(i));
    if (known != nullptr && name == known) return static_cast<ggml_type>(i);
  }
  die("--cache-type: ggml has no type '" + name + "'");
}

llama_flash_attn_type flash_named(const std::string& name) {
  if (name == "on") return LLAMA_FLASH_ATTN_TYPE_ENABLED;
  if (name == "off") return LLAMA_FLASH_ATTN_TYPE_DISABLED;
  if (name == "auto") return LLAMA_FLASH_ATTN_TYPE_AUTO;
  die("--flash must be on, off or auto, not '" + name + "'");
}

std::string last_counters;  // the backend says them in the log

void print_warnings(ggml_log_level level, const char* text, void*) {
  static bool shown = false;
  if (std::strncmp(text, "seriatim: top_k ", 16) == 0) last_counters.assign(text, std::strcspn(text, "\n"));
  if (level != GGML_LOG_LEVEL_CONT)
    shown = level >= GGML_LOG_LEVEL_WARN || std::getenv("SERIATIM_LLAMA_LOG") != nullptr;
  if (shown) std::fputs(text, stderr);
}

void* offered_by_backend(const char* name) {
  ggml_backend_reg_t registered = ggml_backend_reg_by_name("SERIATIM");
  return registered == nullptr ? nullptr : ggml_backend_reg_get_proc_address(registered, name);
}

}  // namespace

SessionOptions session_options(Arguments& arguments) {
  SessionOptions options;
  options.model = arguments.positional();
  options.backend = arguments.text("backend", "");
  options.ubatch = arguments.number("ubatch", 128, 1);
  options.threads = arguments.number("threads", 2, 1);
  options.sequences = arguments.number("sequences", 1, 1);
  options.unified = arguments.flag("unified");
  options.flash = flash_named(arguments.text("flash", "on"));
  options.cache_type = type_named(arguments.text("cache-type", "f16"));
  options.seed = static_cast<std::uint32_t>(arguments.number("seed", 1, 0));
  return options;
}

Session::Session(const SessionOptions& options) : options_(options), random_(options.seed) {
  llama_log_set(print_warnings, nullptr);
  ggml_backend_load_all();  // the backend that GGML_BACKEND_PATH names is among them
  if (!options.backend.empty() && ggml_backend_load(options.backend.c_str()) == nullptr) {
    die(options.backend + ": ggml did not load this backend");
  }
  llama_backend_init();
  model_.reset(llama_model_load_from_file(options.model.c_str(), llama_model_default_params()));
  if (model_ == nullptr) die("'" + options.model + "': llama.cpp did not load this model");
  vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));

  llama_context_params parameters = llama_context_default_params();
  const auto batch = static_cast<std::uint32_t>(std::max(options.ubatch, options.sequences));
  parameters.n_ctx = static_cast<std::uint32_t>(options.sequences * ((options.context + 255) / 256 * 256));
  parameters.n_batch = batch;
  parameters.n_ubatch = batch;
  parameters.n_seq_max = static_cast<std::uint32_t>(options.sequences);
  parameters.n_threads = options.threads;
  parameters.n_threads_batch = options.threads;
  parameters.flash_attn_type = options.flash;
  parameters.type_k = options.cache_type;
  parameters.type_v = options.cache_type;
  parameters.kv_unified = options.unified;
  parameters.cb_eval = options.callback;
  parameters.cb_eval_user_data = options.callback_data;
  context_.reset(llama_init_from_model(model_.get(), parameters));
  if (context_ == nullptr) die("'" + options.model + "': llama.cpp made no context for this model");
}

void Session::feed(int count) {
  std::vector<llama_token> tokens(static_cast<std::size_t>(count));
  for (llama_token& token : tokens) {
    random_ = random_ * 1664525U + 1013904223U;
    token = static_cast<llama_token>((random_ >> 8) % static_cast<std::uint32_t>(vocabulary_));
  }
  llama_batch batch = llama_batch_init(count * options_.sequences, 0, 1);
  for (int sequence = 0; sequence < options_.sequences; ++sequence) {
    for (int i = 0; i < count; ++i) {
      const int at = batch.n_tokens++;
      batch.token[at] = tokens[static_cast<std::size_t>(i)];
      batch.pos[at] = position_ + i;
      batch.n_seq_id[at] = 1;
      batch.seq_id[at][0] = sequence;
      batch.logits[at] = i + 1 == count;
    }
  }
  last_count_ = count;
  const int status = llama_decode(context_.get(), batch);
  llama_batch_free(batch);
  if (status != 0) die("llama_decode answered " + std::to_string(status));
  position_ += count;
}

void Session::prefill(int count) {
  const int most = std::max(1, options_.ubatch / options_.sequences);
  for (int done = 0; done < count;) {
    const int now = std::min(most, count - done);
    feed(now);
    done += now;
  }
}

void Session::fill(int tokens) {
  if (options_.sequences != 1) die("only one sequence can be filled");
  constexpr int kStart = 8;  // tokens, so that the state has every part
  if (tokens < kStart) die("fill at least " + std::to_string(kStart) + " tokens");
  prefill(kStart);
  std::vector<std::uint8_t> state(llama_state_seq_get_size(context_.get(), 0));
  state.resize(llama_state_seq_get_data(context_.get(), state.data(), state.size(), 0));
  const std::vector<std::uint8_t> grown = grow_state(state, architecture(), tokens, options_.seed);
  if (llama_state_seq_set_data(context_.get(), grown.data(), grown.size(), 0) == 0) {
    die("llama.cpp refused a state of " + std::to_string(tokens) + " tokens");
  }
  position_ = tokens;
}

const float* Session::logits(int sequence) const {
  const float* found = llama_get_logits_ith(context_.get(), (sequence + 1) * last_count_ - 1);
  if (found == nullptr) die("llama.cpp has no logits of sequence " + std::to_string(sequence));
  return found;
}

std::string Session::metadata(const std::string& key) const {
  char value[256];
  return llama_model_meta_val_str(model_.get(), key.c_str(), value, sizeof value) < 0 ? "" : value;
}

std::int64_t Session::model_number(const std::string& key) const {
  const std::string value = metadata(architecture() + "." + key);
  return value.empty() ? -1 : std::atoll(value.c_str());
}

std::string engine_name() {
  std::string devices;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    devices += std::string(devices.empty() ? "" : ", ") + ggml_backend_dev_name(ggml_backend_dev_get(i));
  }
  return std::string("llama.cpp with ggml ") + ggml_version() + ", devices " + devices;
}

std::string backend_counters() {
  if (void* found = offered_by_backend("seriatim_print_counters"); found != nullptr) {
    reinterpret_cast<void (*)()>(found)();
  }
  return last_counters;
}

void look_at_time_only() {
  if (void* found = offered_by_backend("seriatim_join_slices"); found != nullptr) {
    reinterpret_cast<void (*)(bool)>(found)(true);
  }
}

}  // namespace seriatim_llama
