"""enable(model) and disable(model): what they put on a model, and take off again."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from . import latent, minimax_m3, pooled_latent, qwen4_exp
from .._core import Group
from ._backend import Engine
from .attention import ATTENTION_NAME, register
from .refusal import Unsupported, name_arguments

# Each knows the text models of its families and how to hook them.
KINDS = (qwen4_exp, latent, pooled_latent, minimax_m3)
FAMILIES = tuple(name for kind in KINDS for name in kind.NAMES)


Model = TypeVar("Model")


class _Enabled:
    """Kept on each text model: how to undo."""

    def __init__(self, implementations, handles):
        self.implementations = implementations  # (config, what it said before)
        self.handles = handles

    def __setstate__(self, state):  # a model that came from another process needs the attention's name here too
        self.__dict__.update(state)
        register()


def _text_models(model):
    """(kind, text model) of every text model of a known family."""
    return [(kind, text_model) for kind in KINDS for text_model in kind.text_models(model)]


def _before_forward(check_forward, text_model, args, kwargs):
    check_forward(text_model, name_arguments(args, kwargs))


def enable(model: Model, *, threads: int = 0, kernels: str | None = None, shard: Group | None = None) -> Model:
    """Makes the sparse attention layers of `model` run on Seriatim, until `disable(model)`.

    model a Transformers model of a known family (`FAMILIES`), or one that holds such, on the CPU, in f32, bf16 or f16
    threads how many run the work, 0: as many as the process may use. Results never depend on it. kernels the name of an
    instruction set ("reference", "avx2", ...), None: the fastest. Nor on this.

    shard a group of `seriatim.shard.meet`: every rank runs the model on the same input, and the keys and values of its
    sparse layers lie spread over the ranks. The results are those of one process, bit for bit. Of qwen4_exp alone;
    batches have no padding, caches are new and their rows are not reordered. Threads and kernels are then those of the
    group's engine.

    Gives `model`. Weights, state_dict and forward signatures stay as they are; no attention forward is replaced. Raises
    Unsupported, and changes nothing, for other models. What is refused later, by name and before a call runs anything:
    training and gradients, caches other than DynamicCache, offloading, output_attentions, masks other than padding,
    packed sequences, devices other than the CPU, torch.compile.
    """
    if is_enabled(model):
        raise ValueError("enable: the model is enabled already; disable it first")
    text_models = _text_models(model)
    if not text_models:
        family = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
        raise Unsupported(f"enable: {family!r} is not a known family; known are {', '.join(FAMILIES)}")
    for kind, text_model in text_models:
        kind.check_model(text_model)
        if shard is not None and kind is not qwen4_exp:
            raise Unsupported(f"shard: {type(text_model).__name__} keeps its context in one process; "
                              f"{', '.join(qwen4_exp.NAMES)} can share it out")
    register()
    engine = Engine(threads=threads, kernels=kernels)
    for kind, text_model in text_models:
        _enable_text_model(kind, text_model, engine, shard)
    return model


def _enable_text_model(kind, text_model, engine, shard):
    configs = {id(module.config): module.config for module in (text_model, *kind.attentions(text_model))}
    implementations = [(config, config._attn_implementation_internal) for config in configs.values()]
    for config, _ in implementations:
        config._attn_implementation_internal = ATTENTION_NAME
    handles = kind.hook_model(text_model, engine) if shard is None else kind.hook_model(text_model, engine, shard)
    handles.append(text_model.register_forward_pre_hook(functools.partial(_before_forward, kind.check_forward),
                                                        with_kwargs=True))
    text_model.seriatim_enabled = _Enabled(implementations, handles)


def disable(model: Model) -> Model:
    """Puts back what `enable` changed. Gives `model`. Caches that it made go on to work."""
    if not is_enabled(model):
        raise ValueError("disable: the model is not enabled")
    for kind, text_model in _text_models(model):
        enabled = text_model.seriatim_enabled
        for handle in enabled.handles:
            handle.remove()
        for config, implementation in enabled.implementations:
            config._attn_implementation_internal = implementation
        kind.unhook_model(text_model)
        del text_model.seriatim_enabled
    return model


@contextlib.contextmanager
def watching(model: Any, watch: Callable[[Any], None]) -> Iterator[None]:
    """Within it, every call of an enabled model's sparse layers is shown to `watch(seen)`, rows included."""
    if not is_enabled(model):
        raise ValueError("watching: the model is not enabled")
    hooks = [attention.seriatim_hook for kind, text_model in _text_models(model)
             for attention in kind.attentions(text_model)]
    for hook in hooks:
        hook.watch = watch
    try:
        yield
    finally:
        for hook in hooks:
            hook.watch = None


def is_enabled(model: Any) -> bool:
    """Whether `enable(model)` is in force."""
    return any(hasattr(text_model, "seriatim_enabled") for _, text_model in _text_models(model))
