from typing import Any

import pytest
import torch

from inkling_runtime.engine.placement import choose_dtype

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("config", "on_cpu", "on_cuda"),
    [
        ({}, torch.float32, torch.bfloat16),
        ({"dtype": "float32"}, torch.float32, torch.float32),
        ({"dtype": "bfloat16"}, torch.bfloat16, torch.bfloat16),
        ({"torch_dtype": "torch.bfloat16"}, torch.bfloat16, torch.bfloat16),
        ({"text_config": {"dtype": "bfloat16"}}, torch.bfloat16, torch.bfloat16),
        ({"text_config": {"dtype": "bfloat16"}, "dtype": "float32"}, *2 * [torch.bfloat16]),
        ({"text_config": {"dtype": None}, "dtype": "float32"}, *2 * [torch.float32]),
        ({"dtype": "float16"}, torch.float32, torch.bfloat16),
    ],
    ids=str,
)
def test_auto_is_what_the_config_says_or_the_devices_default(
    config: dict[str, Any], on_cpu: torch.dtype, on_cuda: torch.dtype
) -> None:
    assert choose_dtype("auto", CPU, config) == on_cpu
    assert choose_dtype("auto", CUDA, config) == on_cuda
    assert choose_dtype("float32", CUDA, config) == torch.float32
