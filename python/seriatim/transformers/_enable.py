"""enable(model) and disable(model): what they put on a model, and take off again."""

import contextlib

from . import qwen4_exp
from ._backend import Threads
from .attention import ATTENTION_NAME, register
from .refusal import Unsupported, check_forward, name_arguments

FAMILIES = ("qwen4_exp",)


class _Enabled:
    """Kept on each text model: how to undo."""

    def __init__(self, implementations, handle):
        self.implementations = implementations  # (config, what it said before)
        self.handle = handle


def _before_forward(text_model, args, kwargs):
    check_forward(text_model, name_arguments(args, kwargs))


def enable(model, *, threads=0, kernels=None):
    """Makes the sparse attention layers of `model` run on Seriatim, until `disable(model)`.

    model    a Transformers model of a known family (`qwen4_exp`), or one that holds such, on the CPU, in f32, bf16 or f16
    threads  how many run the work, 0: as many as the process may use. Results never depend on it.
    kernels  the name of an instruction set ("reference", "avx2", ...), None: the fastest. Nor on this.

    Gives `model`. Weights, state_dict and forward signatures stay as they are; no attention forward is replaced. Raises
    Unsupported, and changes nothing, for other models. What is refused later, by name and before a call runs anything:
    training and gradients, caches other than DynamicCache, offloading, output_attentions, masks other than padding,
    packed sequences, devices other than the CPU, torch.compile.
    """
    if is_enabled(model):
        raise ValueError("enable: the model is enabled already; disable it first")
    text_models = qwen4_exp.text_models(model)
    if not text_models:
        family = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
        raise Unsupported(f"enable: {family!r} is not a known family; known are {', '.join(FAMILIES)}")
    for text_model in text_models:
        qwen4_exp.check_model(text_model)
    register()
    shared = Threads(threads)
    for text_model in text_models:
        _enable_text_model(text_model, shared, kernels)
    return model


def _enable_text_model(text_model, threads, kernels):
    attentions = qwen4_exp.indexed_attentions(text_model)
    configs = {id(module.config): module.config for module in (text_model, *attentions)}
    implementations = [(config, config._attn_implementation_internal) for config in configs.values()]
    for config, _ in implementations:
        config._attn_implementation_internal = ATTENTION_NAME
    for attention in attentions:
        qwen4_exp.hook_layer(attention, text_model.rotary_emb, threads, kernels)
    qwen4_exp.hook_rotary(text_model)
    handle = text_model.register_forward_pre_hook(_before_forward, with_kwargs=True)
    text_model.seriatim_enabled = _Enabled(implementations, handle)


def disable(model):
    """Puts back what `enable` changed. Gives `model`. Caches that it made go on to work."""
    if not is_enabled(model):
        raise ValueError("disable: the model is not enabled")
    for text_model in qwen4_exp.text_models(model):
        enabled = text_model.seriatim_enabled
        enabled.handle.remove()
        for config, implementation in enabled.implementations:
            config._attn_implementation_internal = implementation
        for attention in qwen4_exp.indexed_attentions(text_model):
            qwen4_exp.unhook_layer(attention)
        qwen4_exp.unhook_rotary(text_model)
        del text_model.seriatim_enabled
    return model


@contextlib.contextmanager
def watching(model, watch):
    """Within it, every call of an enabled model's sparse layers is shown to `watch(seen)`, rows included."""
    if not is_enabled(model):
        raise ValueError("watching: the model is not enabled")
    hooks = [a.seriatim_hook for t in qwen4_exp.text_models(model) for a in qwen4_exp.indexed_attentions(t)]
    for hook in hooks:
        hook.watch = watch
    try:
        yield
    finally:
        for hook in hooks:
            hook.watch = None


def is_enabled(model):
    """Whether `enable(model)` is in force."""
    return any(hasattr(text_model, "seriatim_enabled") for text_model in qwen4_exp.text_models(model))
