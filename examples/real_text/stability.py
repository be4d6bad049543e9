"""(b) What changes a greedy generation: the order of reading, the breaking of ties, the batch, the threads."""

import torch

import attention
import greedy


def generation(lab, name, prompts, steps, make, torch_threads=1, seriatim_threads=1):
    """Tokens and logits of sequence 0, kept under `name`."""

    def measure():
        lab.set_threads(torch_threads, seriatim_threads)
        made = make()
        tokens, logits = greedy.generate(lab.model, made, prompts, steps)
        lab.set_threads(lab.threads)
        extra = getattr(getattr(made, "made", None), "tied_rows", None)
        return {"tokens": tokens[0], "logits": logits, "tied_rows": extra}

    return lab.once(f"generation-{prompts.shape[1]}-{steps}-{name}.pt", measure)


def generations(lab, prompt_tokens, steps, budget):
    """Every run against the run it varies: {family: {variation: how it differs}}."""
    text = lab.tokens(4 * prompt_tokens)
    alone = text[:, :prompt_tokens]
    pair = text[:, : 2 * prompt_tokens].view(2, prompt_tokens)
    plain = lab.plain_index_keys()

    def ours(kind=attention.Selective, sequences=1, index_keys=None):
        return lambda: lab.ours(kind, budget, sequences, index_keys)

    def run(name, make, prompts=alone, **threads):
        return generation(lab, name, prompts, steps, make, **threads)

    families = {
        "seriatim": {
            "base": run("seriatim", ours()),
            "rank order": run("seriatim-rank", ours(attention.RankOrder)),
            "later of equals": run("seriatim-later", ours(attention.LaterOfEquals)),
            "Seriatim on two threads": run("seriatim-2-threads", ours(), seriatim_threads=2),
            "everything on two threads": run("seriatim-all-2-threads", ours(), torch_threads=2, seriatim_threads=2),
            "in a batch of two": run("seriatim-pair", ours(sequences=2), pair),
        },
        "seriatim, plain index keys": {
            "base": run("plain", ours(index_keys=plain)),
            "rank order": run("plain-rank", ours(attention.RankOrder, index_keys=plain)),
            "later of equals": run("plain-later", ours(attention.LaterOfEquals, index_keys=plain)),
        },
    }
    for name in ("sdpa", "eager"):
        families[name] = {
            "base": run(name, lambda: greedy.Dense(name)),
            "on two threads": run(f"{name}-2-threads", lambda: greedy.Dense(name), torch_threads=2),
            "in a batch of two": run(f"{name}-pair", lambda: greedy.Dense(name), pair),
        }
    return {
        family: {name: greedy.compare(made, runs["base"]) | ({"tied_rows": made["tied_rows"]}
                                                             if made["tied_rows"] is not None else {})
                 for name, made in runs.items() if name != "base"}
        for family, runs in families.items()
    }  # fmt: skip
