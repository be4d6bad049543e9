"""Index keys and queries for a model that was trained without an indexer, from its own keys and queries.

What Seriatim scores with is, for group g of four tokens, the sum over query heads of relu(index query . pooled key).
These index keys make that follow the attention logits:

- An index key is the keys of all kv heads after RoPE, side by side (3 x 64 = 192 dims), less a constant, their mean.
  The softmax of attention does not notice a constant that is taken off every key, since all logits of a head move
  alike; the relu does: it now cuts at the average logit and not at zero, below which many heads keep all but one of
  theirs.
- Index query h is query head h in the 64 dims of the kv head that it reads, and zeros elsewhere.
- The pooling is QSA's (mean, then RMS norm over all 192 dims with w = 0) without its rotation: what is pooled is
  rotated.
- Much of every head's attention rests on the first token, and its group's mean would drown it. So the first group's
  other tokens have the first token's index key.

The constant is measured once, on 511 tokens of another novel (`measure_centre`), and then is as fixed as
a weight: an index key depends on its own token alone, but for the first group's.
"""

import torch

import smol

GROUP_TOKENS = 4
KV_HEADS, HEAD_DIM, QUERY_HEADS = 3, 64, 9
INDEX_DIM = KV_HEADS * HEAD_DIM


class IndexKeys:
    def __init__(self, centre, share_first=True):
        self.centre = centre  # [layers, 192]
        self.share_first = share_first

    def keys(self, layer, keys, first_position):
        """[T, 3, 64] keys after RoPE, of tokens first_position and on, to [T, 192] index keys."""
        index_keys = keys.reshape(-1, INDEX_DIM) - self.centre[layer]
        if self.share_first and first_position == 0:
            index_keys[1:GROUP_TOKENS] = index_keys[0]
        elif self.share_first and first_position < GROUP_TOKENS:
            raise ValueError("the first group must arrive whole: its tokens share an index key")
        return index_keys

    def queries(self, queries):
        """[Q, 9, 64] queries after RoPE to [Q, 9, 192] index queries."""
        placed = queries.new_zeros(queries.shape[0], QUERY_HEADS, KV_HEADS, HEAD_DIM)
        heads = torch.arange(QUERY_HEADS)
        placed[:, heads, heads // (QUERY_HEADS // KV_HEADS)] = queries
        return placed.reshape(-1, QUERY_HEADS, INDEX_DIM)


def measure_centre(model, tokens):
    """The mean key after RoPE of tokens 1 and on, per layer: [layers, 192]. Token 0's keys are like no other's."""
    means = {}

    def attention(module, query, key, value, mask, **options):
        means[module.layer_idx] = key[0, :, 1:].mean(dim=1).reshape(INDEX_DIM)
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return output.transpose(1, 2).contiguous(), None

    smol.register("measure_centre", attention)
    smol.hidden_states(model, "measure_centre", tokens)
    return torch.stack([means[layer] for layer in sorted(means)])
