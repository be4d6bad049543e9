"""One picture of what was measured."""

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "seriatim", "font.size": 9, "axes.spines.top": False,
                     "axes.spines.right": False})


def by_budget(table, kind):
    """Budgets and entries of one kind, ascending."""
    found = {int(name.split("-")[1]): entry for name, entry in table.items() if name.startswith(kind + "-")}
    return sorted(found.items())


def perplexity(axes, table):
    dense = table["dense"]["second_half"]
    axes.axhline(dense, color="0.5", linewidth=1, linestyle="--")
    axes.annotate(f"dense {dense:.2f}", (0.98, dense), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                  color="0.4")
    for kind, label, colour in (("Selective", "chosen by score", "C0"), ("Window", "first group and newest", "C1")):
        budgets = by_budget(table, kind)
        axes.plot([b for b, _ in budgets], [e["second_half"] for _, e in budgets], "o-", color=colour, label=label,
                  markersize=4)
    ticks = [b for b, _ in by_budget(table, "Selective")]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(b) for b in ticks])
    axes.set_xlabel("budget, tokens")
    axes.set_ylabel("perplexity of the text's second half")
    axes.legend(frameon=False)


def speed(axes, table):
    names = list(table)
    total = [table[name]["decode_ms"] for name in names]
    inside = [table[name]["decode_attention_ms"] for name in names]
    axes.barh(names, total, color="0.85", label="the rest of the model")
    axes.barh(names, inside, color="C0", label="attention")
    for at, name in enumerate(names):
        axes.annotate(f" {table[name]['decode_tokens_per_s']:.1f} tokens/s", (total[at], at), va="center")
    axes.margins(x=0.3)
    axes.invert_yaxis()
    axes.set_yticks(names, [name.replace("Selective-", "Seriatim, budget ") for name in names])
    axes.set_xlabel("ms per decoded token at full context")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def draw(found, path):
    panels = [(perplexity, "perplexity"), (speed, "speed")]
    panels = [(panel, found[name]) for panel, name in panels if name in found]
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.4), layout="constrained", squeeze=False)
    for at, (panel, table) in zip(axes[0], panels):
        panel(at, table)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
