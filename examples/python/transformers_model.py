"""A qwen4_exp model of Transformers on Seriatim, in five lines of main():

    python3 examples/python/transformers_model.py

No checkpoint is needed: the model is small and random, so what it writes means nothing, but its sparse layers select
and attend as a real one's do. Needs torch and transformers beside the package.
"""

import torch
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

import seriatim
import seriatim.transformers


def small_model() -> Qwen4ExpForCausalLM:
    torch.manual_seed(0)
    config = Qwen4ExpTextConfig(
        vocab_size=97, hidden_size=64, num_hidden_layers=2, layer_types=["indexed_attention", "linear_attention"],
        num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
        linear_num_value_heads=4, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=4,
        num_experts_per_tok=2,
        hc_count=2, hc_lowrank=16, indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=48, indexer_budget=64,
        indexer_compress_ratio=4,
        initializer_range=0.15, bos_token_id=1, eos_token_id=None, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 1.0,
                         "mrope_section": [6, 5, 5],
                         "mrope_interleaved": True})
    return Qwen4ExpForCausalLM(config).eval()


def main() -> None:
    model = small_model()  # or Qwen4ExpForCausalLM.from_pretrained(...)
    prompt = torch.randint(1, 97, (1, 300))
    with torch.inference_mode():
        theirs = model.generate(prompt, max_new_tokens=20, do_sample=False)
        seriatim.transformers.enable(model)
        ours = model.generate(prompt, max_new_tokens=20, do_sample=False)
        seriatim.transformers.disable(model)
    print("Transformers wrote", theirs[0, 300:].tolist())
    print("Seriatim wrote    ", ours[0, 300:].tolist())


if __name__ == "__main__":
    main()
