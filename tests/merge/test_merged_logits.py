"""A merged checkpoint gives in transformers what PEFT computes from base and adapter.

The base model of PEFT is in float64 with the very weights that were merged into, so only the
rounding of the merged weights is between the two. Logits are compared relative to the largest
change that the adapter makes, so that a lost or doubled delta cannot hide in them.
"""

from pathlib import Path

import pytest
import torch
from checkpoints import FORMS, merge, save_base, write_normal_adapter
from peft import PeftModel
from transformers import InklingForCausalLM, InklingForConditionalGeneration

from adapter.conversion import convert
from adapter.peft_models import logits_of, only_known_warnings
from inkling_runtime.adapter.model_spec import read_model_spec

TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1e-2}
"""Of the logits, relative to the largest change of one: bf16 rounds each weight to 8 bits."""


def load_model(folder: Path, form: str) -> torch.nn.Module:
    """Return a checkpoint as transformers reads it, computing in float64."""
    kind = InklingForCausalLM if form == "text" else InklingForConditionalGeneration
    model, report = kind.from_pretrained(
        folder, dtype=torch.float64, experts_implementation="eager", output_loading_info=True
    )
    assert not any(report.values())
    return model.eval()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shard", ["1GB", "40KB"])
def test_the_logits_are_those_of_base_plus_adapter(
    tmp_path: Path, form: str, dtype: torch.dtype, shard: str
) -> None:
    base = save_base(tmp_path / "base", form, dtype, max_shard_size=shard)
    adapter = write_normal_adapter(tmp_path / "adapter", rank=6, alpha=9)
    convert(adapter, "peft", tmp_path / "peft", read_model_spec(base))
    merge(base, tmp_path / "merged", adapter)

    model = load_model(base, form)
    without = logits_of(model)
    with only_known_warnings() as unexpected:
        want = logits_of(PeftModel.from_pretrained(model, tmp_path / "peft").eval())
    assert not unexpected
    got = logits_of(load_model(tmp_path / "merged", form))
    change = (want - without).abs().max()
    assert change > 0.1 * want.abs().max()
    assert (got - want).abs().max() <= TOLERANCE[dtype] * change


@pytest.mark.parametrize("form", FORMS)
def test_an_adapter_of_peft_merges_as_peft_itself_merges_it(tmp_path: Path, form: str) -> None:
    base = save_base(tmp_path / "base", form)
    adapter = write_normal_adapter(tmp_path / "adapter", dtype="F32", alpha=5)
    convert(adapter, "peft", tmp_path / "peft", read_model_spec(base))
    merge(base, tmp_path / "merged", tmp_path / "peft")
    model = load_model(base, form)
    with only_known_warnings() as unexpected:
        merged = PeftModel.from_pretrained(model, tmp_path / "peft").merge_and_unload()
    assert not unexpected
    want = merged.state_dict()
    for name, tensor in load_model(tmp_path / "merged", form).state_dict().items():
        torch.testing.assert_close(tensor, want[name], rtol=2.0**-24, atol=1e-12, msg=name)
