// The state of a sequence, as llama_state_seq_get_data writes it, made longer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace seriatim_llama {

// Gives   `state`, of a sequence at positions 0..m-1, with `tokens` cells at positions 0..tokens-1 that hold normally
//         distributed random numbers; a recurrent part is kept and moved to the last position
// Errors  ends the program: an architecture that is not among qwen4exp, deepseek32, glm-dsa, hy_v4 and minimax-m3, or
//         a state of another layout
std::vector<std::uint8_t> grow_state(const std::vector<std::uint8_t>& state, const std::string& architecture,
                                     int tokens, std::uint32_t seed);

}  // namespace seriatim_llama
