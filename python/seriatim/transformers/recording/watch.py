"""Sees what a module's own code hands to a few functions of torch, and changes nothing.

A mode of torch is shown every call while it is entered, on this thread alone; it calls on and keeps references.
"""

from torch.overrides import TorchFunctionMode


class IndexerWatch(TorchFunctionMode):
    """What one call of an indexer sorts: the scores given to `topk`, with what came back. With `products`, what its two
    matrix products multiply as well: queries with keys, then head weights with what came of it."""

    def __init__(self, products):
        super().__init__()
        self.sorted = []  # (scores, indices) of each topk
        self.queries = self.keys = self.weights = None
        self._products = products
        self._widened = []  # dtypes before .float(), in order

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name == "topk":
            self.sorted.append((args[0].detach(), result.indices))
        elif self._products and name == "float" and self.queries is None:
            self._widened.append(args[0].dtype)
        elif self._products and name == "matmul":
            self._keep_product(args)
        return result

    def _keep_product(self, operands):
        if self.queries is None:  # both were widened to f32 just before; back in their own dtype no bit is lost
            self.queries, self.keys = (x.detach().to(dtype) for x, dtype in zip(operands, self._widened[-2:]))
        elif self.weights is None:
            self.weights = operands[0].detach()


class AttentionWatch(TorchFunctionMode):
    """What one call of an attention layer multiplies: queries [B, H, S, d], keys [B, H, T, d] and values, the
    probabilities where they are made (eager), and what attention gives, before gate and projection. `paused` while the
    indexer runs."""

    def __init__(self):
        super().__init__()
        self.paused = False
        self.queries = self.keys = self.values = self.probabilities = self.output = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.paused:
            return result
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            given = dict(zip(("query", "key", "value"), args)) | kwargs
            self.queries, self.keys, self.values, self.output = given["query"], given["key"], given["value"], result
        elif name == "matmul" and args[0].ndim == 4 and args[1].ndim == 4:
            if self.queries is None:
                self.queries, self.keys = args[0], args[1].transpose(2, 3)
            elif self.output is None:
                self.probabilities, self.values, self.output = args[0], args[1], result
        return result
