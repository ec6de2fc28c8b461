"""Records how much memory the engines themselves take: the data of test_engine_memory.py.

    python record_engine_memory.py vllm   ORACLE WHEEL > engine_memory_vllm.jsonl
    python record_engine_memory.py sglang ORACLE WHEEL > engine_memory_sglang.jsonl

ORACLE is a folder whose `<engine>_oracle.py` can import the engine without a GPU, WHEEL the
unpacked wheel. The engine's own model and its own LoRA manager are built on the CPU, with a
process for each rank; what is written are the sizes of their buffers, parameters and caches.
Not a test: it needs the engines.
"""

import importlib
import json
import os
import shlex
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
QUIET = SimpleNamespace(verbose=False, load="dynamic")


def bytes_of(tensors: Any) -> int:
    """Return the bytes of a tensor, or of several."""
    if hasattr(tensors, "numel"):
        return tensors.numel() * tensors.element_size()
    return sum(map(bytes_of, tensors))


def kind_of(name: str) -> str:
    """Return a module's name without numbers."""
    return ".".join(part for part in name.split(".") if not part.isdigit())


def measure_vllm(oracle: Any, config_file: Path, words: list[str], rank: int) -> dict[str, Any]:
    """Return what one rank of vLLM holds."""
    import vllm.platforms
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    base = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
    platform = type(vllm.platforms.current_platform)
    platform.get_device_communicator_cls = classmethod(lambda cls: base)
    args = ["--model", str(config_file.parent), "--skip-tokenizer-init", "--load-format", "dummy"]
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    parsed = parser.parse_args([*args, "--enable-lora", *words])
    config = EngineArgs.from_cli_args(parsed).create_engine_config()
    ranks = config.parallel_config.tensor_parallel_size
    with set_current_vllm_config(config):
        store = f"file://{config_file.parent}/store"
        init_distributed_environment(ranks, rank, store, rank, backend="gloo")
        initialize_model_parallel(ranks, 1)
        runner, model, _ = oracle.build(QUIET, config)
        found = config.compilation_config.static_forward_context.items()
        caches = {
            name: owner.get_kv_cache_spec(config)
            for name, owner in found
            if hasattr(owner, "get_kv_cache_spec")
        }
    slots: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, module in runner.lora_manager._adapter_manager.modules.items():
        parts = ("w13_", "w2_") if hasattr(module, "w13_lora_a_stacked") else ("",)
        for part in parts:
            kind = kind_of(name) + (f".{part[:-1]}" if part else "")
            for index, factor in enumerate("ab"):
                slots[kind][index] += bytes_of(getattr(module, f"{part}lora_{factor}_stacked"))
    return {
        "slots": slots,
        "derived": 0,
        "weights": bytes_of(model.parameters()),
        "caches": _by_kind(caches),
        "needed_cache": sum(spec.max_memory_usage_bytes(config) for spec in caches.values()),
    }


def _by_kind(caches: dict[str, Any]) -> dict[str, list[int]]:
    """Return tokens of a block, and bytes of a block of all layers, for each kind of cache."""
    found: dict[str, list[int]] = {}
    for name, spec in caches.items():
        kind = "convolution" if name.endswith(".conv_state") else type(spec).__name__
        block = found.setdefault(kind, [spec.block_size, 0])
        assert block[0] == spec.block_size
        block[1] += spec.page_size_bytes
    return found


def measure_sglang(oracle: Any, config_file: Path, words: list[str], rank: int) -> dict[str, Any]:
    """Return what one rank of SGLang holds."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import bootstrap
    from sglang.srt.distributed.parallel_state import (
        init_distributed_environment,
        initialize_model_parallel,
    )
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish
    from sglang.srt.server_args import prepare_server_args

    line = ["--model-path", str(config_file.parent), "--skip-tokenizer-init", "--device", "cuda"]
    args = prepare_server_args([*line, "--enable-lora", *words])
    args.resolve_once()
    args.check_server_args()
    publish(args, role="scheduler", ranks=SpawnRanks(world_rank=rank, gpu_id=rank))
    init_distributed_environment(
        backend="gloo",
        world_size=get_parallel().tp_size,
        rank=rank,
        local_rank=rank,
        distributed_init_method=f"file://{config_file.parent}/store",
    )
    initialize_model_parallel()
    initialize_dp_attention(server_args=args)
    config = ModelConfig.from_server_args(args)
    bootstrap.init_layer_runtime(model_config=config)
    model, manager = oracle.build(QUIET, args, config)
    slots: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, buffer in oracle.pool_tensors(manager).items():
        module, _, factor = name.rpartition("/")
        slots[kind_of(module.removeprefix("layers."))]["AB".index(factor)] += bytes_of(buffer)
    derived = ("_w1_delta", "_a_cat", "_down_cat")
    beside = [getattr(module, name, None) for module in model.modules() for name in derived]
    return {
        "slots": slots,
        "derived": bytes_of([buffer for buffer in beside if buffer is not None]),
        "weights": bytes_of(model.parameters()),
        "conv_state": config.hf_config.get_text_config().mamba2_cache_params.mamba_cache_per_req,
    }


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "vllm": measure_vllm,
    "sglang": measure_sglang,
}


def in_processes(measure: Callable[[Path, int], dict[str, Any]], config: Any, ranks: int) -> Any:
    """Return what the first of several ranks holds, each a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        config_file = Path(folder) / "config.json"
        config_file.write_text(json.dumps(config))
        children = []
        for rank in range(ranks):
            child = os.fork()
            if not child:
                try:
                    found = measure(config_file, rank)
                    if not rank:
                        (Path(folder) / "found.json").write_text(json.dumps(found))
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        return json.loads((Path(folder) / "found.json").read_text())


def main(engine: str, oracle_folder: str, wheel: str) -> None:
    sys.path[:0] = [oracle_folder, str(REPOSITORY / "tests"), str(REPOSITORY / "src")]
    cases = importlib.import_module("memory.engine_models")
    answer = os.dup(1)
    os.dup2(2, 1)
    importlib.import_module("_common").clean_environment()
    os.environ.update(INKLING_MULTIMEM_AR="0", LAMPORT_RS_SCONV="0")
    oracle = importlib.import_module(f"{engine}_oracle")
    oracle.warm_up(Path(wheel))
    for model, options in cases.LAUNCHES[engine]:
        words = shlex.split(options)
        sizes = {"--tensor-parallel-size", "--tp-size"} & set(words)
        ranks = int(words[words.index(sizes.pop()) + 1]) if sizes else 1

        def measure(file: Path, rank: int, words: list[str] = words) -> dict[str, Any]:
            return MEASURES[engine](oracle, file, words, rank)

        found = in_processes(measure, cases.MODELS[model], ranks)
        line = json.dumps({"model": model, "options": options, **found})
        os.write(answer, f"{line}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
