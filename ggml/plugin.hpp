// The registry and the device that ggml is shown, and what an application may ask of them by name.
#pragma once

#include <ggml-backend.h>

#include <string_view>

namespace seriatim::plugin {

// The versions of ggml that this was built and tested with. The structures between ggml and a backend are private to
// ggml and change without notice.
bool is_tested_version(std::string_view version);

// Null, after a message, where the ggml of this process is not one of them, or SERIATIM_GGML is not a word that
// options_named() knows. Always the same otherwise.
ggml_backend_reg_t registry();

}  // namespace seriatim::plugin
