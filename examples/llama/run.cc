// Runs a model of llama.cpp on random tokens, with or without a backend, and writes what it selected and answered.
//
//   llama_run MODEL [--tokens 600] [--steps 8] [--fill N] [--record FOLDER [--every N]] [--logits FILE.npy]
//             [--time-layers] [--backend LIBRARY] [--ubatch 128] [--threads 2] [--sequences 1] [--unified]
//             [--flash on|off|auto] [--cache-type f16] [--seed 1]
//
// --tokens are prefilled (after --fill, behind them), --steps decoded one by one. --logits: those of each step, and
// first those of the last prefilled token, as f32 [steps + 1, sequences, vocabulary]. --time-layers times the sparse
// parts of the layers in decoding, or with --steps 0 in prefill, in each call.
// The last line is JSON: times in milliseconds, and what was written.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "rows.hpp"
#include "session.hpp"
#include "times.hpp"

namespace {

using seriatim_llama::die;

double milliseconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void write_npy(const std::string& path, const std::vector<float>& values, const std::string& shape) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  std::ofstream out(path, std::ios::binary);
  out.write("\x93NUMPY\x01\x00", 8);
  out.write(reinterpret_cast<const char*>(&length), 2);
  out << header;
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  out.close();
  if (!out) die(path + ": could not be written");
}

std::string json(const std::vector<double>& values) {
  std::string text = "[";
  for (const double value : values) {
    char number[32];
    std::snprintf(number, sizeof number, "%s%.4f", text.size() > 1 ? ", " : "", value);
    text += number;
  }
  return text + "]";
}

}  // namespace

int main(int count, char** values) {
  seriatim_llama::Arguments arguments(count, values);
  seriatim_llama::SessionOptions options = seriatim_llama::session_options(arguments);
  const int tokens = arguments.number("tokens", 600, 0);
  const int steps = arguments.number("steps", 8, 0);
  const int fill = arguments.number("fill", 0, 0);
  const std::string record = arguments.text("record", "");
  const int every = arguments.number("every", 1, 1);
  const std::string logits_file = arguments.text("logits", "");
  const bool time_layers = arguments.flag("time-layers");
  arguments.finish();
  if (options.model.empty()) die("usage: llama_run MODEL [options]; the head of examples/llama/run.cc has them");
  if (time_layers && !record.empty()) die("--record and --time-layers exclude each other");
  if (tokens == 0 && !logits_file.empty())
    die("--logits begins with those of a prefilled token: --tokens must not be 0");

  seriatim_llama::RowRecorder rows(every);
  seriatim_llama::LayerTimes layers;
  if (!record.empty()) {
    options.callback = seriatim_llama::RowRecorder::callback;
    options.callback_data = &rows;
  } else if (time_layers) {
    options.callback = seriatim_llama::LayerTimes::callback;
    options.callback_data = &layers;
  }
  options.context = fill + tokens + steps + (time_layers ? 2 * options.ubatch : 0);
  seriatim_llama::Session session(options);
  if (!record.empty()) rows.watch(session);
  if (time_layers) seriatim_llama::look_at_time_only();
  if (fill > 0) session.fill(fill);

  std::vector<float> logits;
  const auto keep_logits = [&] {
    if (logits_file.empty()) return;
    for (int sequence = 0; sequence < options.sequences; ++sequence) {
      const float* from = session.logits(sequence);
      logits.insert(logits.end(), from, from + session.vocabulary());
    }
  };
  // Of calls that are timed the first makes the graph, and the second shows it.
  const auto show = [&](int each) {
    if (!time_layers) return;
    session.prefill(each);
    layers.learn();
    session.prefill(each);
    layers.start();
  };
  if (steps == 0) show(std::max(1, options.ubatch / options.sequences));
  const double prefill = milliseconds_of([&] { session.prefill(tokens); });
  if (tokens > 0) keep_logits();
  if (steps > 0) show(1);
  std::vector<double> decode;
  for (int i = 0; i < steps; ++i) {
    decode.push_back(milliseconds_of([&] {
      session.feed(1);
      llama_synchronize(session.context());
    }));
    keep_logits();
  }
  if (!logits_file.empty()) {
    write_npy(logits_file, logits,
              std::to_string(steps + 1) + ", " + std::to_string(options.sequences) + ", " +
                  std::to_string(session.vocabulary()));
  }
  const int files = record.empty() ? 0 : rows.write(record);
  std::vector<double> parts;
  for (const double seconds : layers.seconds()) parts.push_back(1e3 * seconds);
  std::printf(
      "{\"family\": \"%s\", \"engine\": \"%s\", \"position\": %d, \"prefill_ms\": %.3f, \"decode_ms\": %s, "
      "\"sparse_layers\": %d, \"sparse_ms\": %s, \"dumps\": %d, \"counters\": \"%s\"}\n",
      session.architecture().c_str(), seriatim_llama::engine_name().c_str(), session.position(), prefill,
      json(decode).c_str(), layers.parts(), json(parts).c_str(), files, seriatim_llama::backend_counters().c_str());
  return 0;
}
