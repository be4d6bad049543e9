// How the computation of a node ended.
#pragma once

namespace seriatim::plugin {

enum class Outcome {
  kDone,
  kLeft,     // not for us after all: ggml's CPU backend computes it; nothing that it reads has changed
  kAborted,  // the application asked to stop
};

// Asked between pieces of work.
struct AbortCallback {
  bool (*callback)(void* data) = nullptr;
  void* data = nullptr;
  bool wants_to_stop() const { return callback != nullptr && callback(data); }
};

}  // namespace seriatim::plugin
