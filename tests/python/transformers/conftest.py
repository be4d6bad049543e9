import copy
import pathlib
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "oracle")]


@pytest.fixture(scope="module")
def pairs():
    """The same weights, eager and enabled, made when first asked for."""
    import torch

    import seriatim.transformers as st
    from support_families import make_model
    from support_family_runs import BUDGET

    made = {}

    def pair(family, dtype=torch.float32):
        if (family, dtype) not in made:
            eager = make_model(family, BUDGET, dtype)
            made[family, dtype] = eager, st.enable(copy.deepcopy(eager))
        for model in made[family, dtype]:
            if hasattr(model.model, "rope_deltas"):
                model.model.rope_deltas = None  # hy_v4_vl remembers them from call to call, whatever the batch
        return made[family, dtype]

    return pair


@pytest.fixture(scope="module")
def enabled():
    """One enabled model of each family, made when first asked for."""
    import seriatim.transformers as st
    from support_enabled import made

    models = {}

    def model(family):
        if family not in models:
            models[family] = st.enable(made(family))
        return models[family]

    return model
