"""Launches of vLLM for the engine itself to judge: valid ones, and ones broken in one or two ways.

Deterministic: the same seed gives the same launches. A launch is what the engine's own parser
sees, as the folders of the test world (`vllm_adapters.py`) and options by name. `words_of` writes
it down as a command, exactly as the oracle passes it on.
"""

import json
import random
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance import vllm_adapters as world

SEED = 3
ALWAYS = ("--skip-tokenizer-init", "--load-format", "dummy")
"""What the oracle adds to every launch."""
SHARED = {"enable-moe-shared-loras": "true"}
MULTIMEM = {"INKLING_MULTIMEM_AR": "0"}


@dataclass(frozen=True)
class Launch:
    """One launch: an adapter and a model of the world, options without dashes, variables."""

    id: str
    adapter: str = "for-vllm"
    model: str = "model"
    flags: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, str] = field(default_factory=dict)


def words_of(launch: Launch) -> list[str]:
    """Return the launch as the words of a command; `{root}` stands for the world's folder."""
    words = ["vllm", "serve", f"{{root}}/{launch.model}", *ALWAYS]
    if "enable-lora" not in launch.flags:
        words.append("--enable-lora")
    for key, value in launch.flags.items():
        if value.lower() in ("", "true"):
            words.append(f"--{key}")
        elif value.lower() == "false":
            words.append(f"--no-{key}")
        else:
            words += [f"--{key}", *shlex.split(value)]
    path = f"{{root}}/adapters/{launch.adapter}"
    entry = {"name": "oracle", "path": path, **{k: v == "true" for k, v in launch.request.items()}}
    return [*words, "--lora-modules", json.dumps(entry) if launch.request else f"oracle={path}"]


def generate(seed: int = SEED, pairs: int = 120) -> list[Launch]:
    """Return all launches with one change, and a number of those with two, without doubles."""
    singles = [*_adapters(), *_models(), *_options(), *_environments(), *_experts()]
    chosen = random.Random(seed)
    launches = {launch.id: launch for launch in singles}
    while len(launches) < len(singles) + pairs:
        launch = _combine(*chosen.sample(singles, 2))
        if launch is not None:
            launches[launch.id] = launch
    return list(launches.values())


def _combine(first: Launch, second: Launch) -> Launch | None:
    """Return both changes at once, unless they touch the same thing."""
    plain = Launch("")
    for name in ("adapter", "model", "request"):
        if getattr(first, name) != getattr(plain, name) != getattr(second, name):
            return None
    changed = _changes(first.flags) & _changes(second.flags)
    if changed or set(first.env) & set(second.env) - set(MULTIMEM):
        return None
    env = {**first.env, **second.env}
    if first.env.get("INKLING_MULTIMEM_AR") != "0":
        env = {**second.env, **first.env}
        env = {k: v for k, v in env.items() if k in first.env or k != "INKLING_MULTIMEM_AR"}
    flags = {**SHARED, **_own(first.flags), **_own(second.flags)}
    if (
        "enable-moe-shared-loras" not in first.flags
        or "enable-moe-shared-loras" not in second.flags
    ):
        del flags["enable-moe-shared-loras"]
    return Launch(
        f"{first.id} + {second.id}",
        first.adapter if first.adapter != plain.adapter else second.adapter,
        first.model if first.model != plain.model else second.model,
        flags,
        env,
        first.request or second.request,
    )


def _own(flags: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in flags.items() if key not in SHARED}


def _changes(flags: Mapping[str, str]) -> set[str]:
    return {key.removeprefix("no-") for key in _own(flags)}


def _launch(id_: str, adapter: str = "for-vllm", model: str = "model", **options: str) -> Launch:
    """Return a launch as it should be, but for some options (`_` for `-`; `...` is left out)."""
    flags = {key.replace("_", "-"): value for key, value in options.items()}
    return Launch(id_, adapter, model, {**SHARED, **flags}, MULTIMEM)


def _per_expert(name: str) -> bool:
    parts = ("numbered", "one-by-one")
    return any(part in name for part in parts)


def _adapters() -> Iterator[Launch]:
    """Every adapter of the world, served as it should be, and some of them otherwise."""
    names = [
        *world.TENSOR_VARIANTS,
        *world.SCALED_VARIANTS,
        *world.CONFIG_VARIANTS,
        *world.DROPPED_KEYS,
        *world.FILE_FAULTS,
        *("released", "twin-for-vllm", "attention", "one-by-one", "stacks", "rank32-for-vllm"),
        *("pattern", "torn", "both-layouts", "no-head-name", "misnamed", "oversized", "incomplete"),
    ]
    for name in names:
        flags = {} if _per_expert(name) else SHARED
        yield Launch(f"adapter {name}", name, flags=flags, env=MULTIMEM)
    for name in ("attention", "one-by-one", "released", "stacks", "numbered-no-expert", "for-vllm"):
        flags = SHARED if _per_expert(name) else {}
        yield Launch(f"other layout {name}", name, flags=flags, env=MULTIMEM)
    for name, limit in (
        ("rank-24", "32"),
        ("rank-24", "16"),
        ("rank-256", "256"),
        ("rank-256", "320"),
        ("rank-40", "64"),
        ("rank-pattern-above", "64"),
        ("tensors-rank-20", "32"),
        ("one-tensor-rank-20", "64"),
        ("for-vllm", "1"),
        ("rank-1", "1"),
        ("only-head", "1"),
    ):
        yield _launch(f"rank limit {limit} {name}", name, max_lora_rank=limit)


def _models() -> Iterator[Launch]:
    for name in world.MODEL_VARIANTS:
        yield _launch(f"model {name}", model=name)
    for name in ("text-model", "layer-types-model", "no-dense-model", "all-global-model"):
        yield _launch(f"model {name} attention", "attention", name)
        yield _launch(f"model {name} head", "only-head", name)
    yield _launch("model no-dense-model experts", "only-experts", "no-dense-model")


_VALUES: dict[str, tuple[str, ...]] = {
    "max-loras": ("1", "2", "8", "0", "-1", "two", "1.5", "' 2 '", "1_0", "None"),
    "max-cpu-loras": ("1", "4", "0", "-3", "None", "four"),
    "max-lora-rank": (
        "1",
        "8",
        "16",
        "32",
        "320",
        "512",
        "4",
        "24",
        "0",
        "1024",
        "16.0",
        "1_6",
        "x",
    ),
    "lora-dtype": ("auto", "bfloat16", "float32", "fp16", "BFLOAT16"),
    "dtype": ("auto", "bfloat16", "half", "float16", "float", "float32", "bf16"),
    "max-lora-cls-labels": ("2", "0", "None", "a"),
    "enable-tower-connector-lora": ("true", "false"),
    "specialize-active-lora": ("true",),
    "enable-mixed-moe-lora-format": ("true", "false"),
    "fully-sharded-loras": ("true", "false"),
    "lora-target-modules": (
        *("qkvr", "wo_ud", "wq_du", "wr_du", "gate_up_proj", "down_proj", "experts", "experts.w1"),
        *("w13", "w1", "w3", "w2", "lm_head", "experts.0.gate_proj", "gate_proj", "q_proj", "all"),
        *("gate", "embed_tokens", "norm", "attn", "mlp", "layers", "0", "2", "7", "sink_experts"),
        *("logits_processor", "routed_experts", "k_sconv", "model", "shared_experts", "''"),
        *("qkvr wo_ud", "wo_ud gate", "q_proj qkvr", "model.layers.1.attn.wo_ud", "None"),
        *("model.layers.1.mlp.gate", "model.layers.0.mlp.gate", "model.layers.1.attn"),
        "qkvr wo_ud gate_up_proj down_proj experts w13 w2 lm_head",
    ),
    "moe-backend": (
        *("triton", "auto", "marlin", "Flashinfer-CUTLASS", "deep_gemm_mega_moe", "aiter_mega_moe"),
        *("flashinfer_moe_ep_cutedsl", "deep-gemm-mega-moe", "tritn"),
    ),
    "kernel-config": (
        '\'{"moe_backend": "aiter_mega_moe"}\'',
        '\'{"moe_backnd": "triton"}\'',
        "'{}' --kernel-config.moe_backend=deep_gemm_mega_moe",
    ),
    "default-mm-loras": ('\'{"image": "/none"}\'', "'{}'", "'{\"image\": 3}'", "image=/none"),
    "max-num-seqs": ("1", "64", "0", "-2", "many", "1k"),
    "max-num-batched-tokens": ("2048", "8k", "1K", "0", "-1", "1.5", "2.5k", "2.5K"),
    "max-model-len": ("1024", "1k", "2K", "auto", "-1", "0", "-2", "AUTO", "long"),
    "gpu-memory-utilization": ("0.5", "1", "1.0", "0", "1.01", "-0.1", "most"),
    "tensor-parallel-size": ("1", "3", "5", "0", "-1", "two"),
    "pipeline-parallel-size": ("1", "0", "x"),
    "data-parallel-size": ("1", "0"),
    "block-size": ("16", "64", "0", "-1", "x"),
    "seed": ("1", "-1", "x"),
    "kv-cache-dtype": ("auto", "fp8", "bfloat16", "float16", "fp4", "FP8"),
    "quantization": ("None", "fp4", "FP8", "mxfp44"),
    "attention-backend": ("auto", "TRITON_ATTN", "flash_attn", "flash-attn", "FLASH"),
    "mamba-backend": ("TRITON", "cuda"),
    "optimization-level": ("0", "2", "4", "O2"),
    "reasoning-parser": ("inkling", "none", "inklin", "qwen3"),
    "config-format": ("auto", "hf", "json"),
    "data-parallel-backend": ("mp", "slurm"),
    "all2all-backend": ("naive", "pplx", "deepep_low_latency", "none"),
    "enable-expert-parallel": ("true", "false"),
    "enable-eplb": ("true", "false"),
    "enable-dbo": ("true", "false"),
    "ubatch-size": ("0", "1", "2", "-1"),
    "enforce-eager": ("true", "false"),
    "enable-prefix-caching": ("true", "false"),
    "enable-chunked-prefill": ("true", "false"),
    "scheduling-policy": ("fcfs", "priority", "lifo"),
    "stream-interval": ("1", "0"),
    "swap-space": ("4",),
    "shutdown-timeout": ("0", "5", "-1"),
    "max-logprobs": ("5", "-1", "-2"),
    "safetensors-load-strategy": ("lazy", "eager", "None", "fast"),
    "hf-overrides": ("'{}'", "a=b"),
    "override-generation-config": ("'{\"temperature\": 0.5}'", "temperature=0.5"),
    "limit-mm-per-prompt": ("'{\"image\": 1}'", "image=1"),
    "compilation-config": ("'{\"cudagraph_specialize_lora\": false}'", "'{\"zzz\": 1}'", "3"),
    "ec-transfer-config": ('\'{"ec_connector": "ECExampleConnector"}\'', "'{\"connector\": 1}'"),
    "kv-cache-metrics-sample": ("0.5", "0", "2"),
    "watermark": ("0.5", "1", "-1"),
    "language-model-only": ("true",),
    "runner": ("generate", "pooling", "chat"),
    "convert": ("none", "embed"),
    "logprobs-mode": ("raw_logits", "logits"),
    "served-model-name": ("inkling", "a b"),
    "trust-remote-code": ("true",),
    "disable-log-stats": ("true",),
    "fail-on-environ-validation": ("true",),
    "data-parallel-rank": ("0", "1"),
    "decode-context-parallel-size": ("1", "2"),
}
"""Option → values to try, valid and not."""

_SEQUENCES: tuple[dict[str, str], ...] = (
    {"max-loras": "4", "max-cpu-loras": "2"},
    {"max-loras": "4", "max-cpu-loras": "4"},
    {"max-loras": "4", "max-cpu-loras": "0"},
    {"max-loras": "2 --max_cpu_loras=4"},
    {"max-loras": "2 --max_cpu_loras=1"},
    {"max-loras": "2 --max-cpu-l 4"},
    {"max-loras": "2 --max-cpu-l 1"},
    {"max-loras": "2 --max-l 4"},
    {"max-loras": "2 --max-lora 4"},
    {"max-loras": "0 --max-loras 2"},
    {"max-loras": "2 --max-loras 0"},
    {"max-loras": "2 4"},
    {"max-loras": "2 --enforce-eager=true"},
    {"max-loras": "2 --enforce-eager true"},
    {"max-loras": "2 --disable-moe-shared-loras"},
    {"max-loras": "2 --no-enable-moe-shared-loras"},
    {"max-loras": "2 --enable_moe_shared_loras"},
    {"max-loras": "2 --fully-sharded"},
    {"max-loras": "2 -O3"},
    {"max-loras": "2 -O 1"},
    {"max-loras": "2 -O9"},
    {"max-loras": "2 -tp 3"},
    {"max-loras": "2 -tp=1"},
    {"max-loras": "true"},
    {"max-lorra": "2"},
    {"max-loraz-rank": "2"},
    {"frobnicate": "3"},
    {"frobnicate": "true"},
    {"lora-modules-path": "x"},
    {"enable-lora": "true"},
    {"max-num-seqs": "128", "max-num-batched-tokens": "64"},
    {"max-num-seqs": "64", "max-num-batched-tokens": "64"},
    {"max-num-active-seqs": "9", "max-num-seqs": "8"},
    {"max-num-active-seqs": "8", "max-num-seqs": "8"},
    {"long-prefill-token-threshold": "5000", "max-model-len": "4096"},
    {"long-prefill-token-threshold": "1000", "max-model-len": "4096"},
    {"enable-chunked-prefill": "false", "max-num-batched-tokens": "1k", "max-model-len": "4k"},
    {"enable-chunked-prefill": "false", "max-num-batched-tokens": "4k", "max-model-len": "4k"},
    {"enable-eplb": "true", "enable-expert-parallel": "true"},
    {"enable-dbo": "true", "enable-expert-parallel": "true"},
    {"enable-expert-parallel": "true", "all2all-backend": "nixl_ep"},
    {"enable-expert-parallel": "true", "fully-sharded-loras": "true"},
    {"fully-sharded-loras": "true", "lora-target-modules": "qkvr"},
    {"fully-sharded-loras": "true", "lora-target-modules": "wr_du wo_ud"},
    {"fully-sharded-loras": "true", "lora-target-modules": "wo_ud experts"},
    {"fully-sharded-loras": "true", "lora-target-modules": "model.layers.0.attn.qkvr"},
    {"fully-sharded-loras": "true", "max-lora-rank": "1"},
    {"kv-cache-dtype": "float16", "dtype": "float16"},
    {"reasoning-parser": "mine", "reasoning-parser-plugin": "/none.py"},
)
"""Options in company, and words that the parser reads in its own way."""

_BATCH = {"max-num-seqs": "64", "max-num-batched-tokens": "256"}
_NGRAM = '"method": "ngram", "num_speculative_tokens"'
_DRAFTS: tuple[tuple[str, dict[str, str]], ...] = (
    (f"{{{_NGRAM}: 3}}", _BATCH),
    (f"{{{_NGRAM}: 4}}", _BATCH),
    (f"{{{_NGRAM}: 0}}", _BATCH),
    (f'{{{_NGRAM}: 3, "enable_adaptive_verification": true}}', _BATCH),
    (f'{{{_NGRAM}: 3, "enable_adaptive_verification": false}}', _BATCH),
    (f'{{{_NGRAM}: 3, "prompt_lookup_min": 5, "prompt_lookup_max": 2}}', _BATCH),
    (f'{{{_NGRAM}: 3, "tensor_parallel_size": 1}}', _BATCH),
    (f'{{{_NGRAM}: 3, "lookup": 1}}', _BATCH),
    ('{"method": "ngram"}', _BATCH),
    ('{"method": "ngram", "num-speculative-tokens": 3}', _BATCH),
    ('{"method": "mtp", "num_speculative_tokens": 2}', _BATCH),
    ('{"method": "inkling_mtp", "num_speculative_tokens": 2}', _BATCH),
    ('{"method": "mtp"}', _BATCH),
    ('{"method": "guess", "num_speculative_tokens": 2}', _BATCH),
    ('{"method": "eagle", "num_speculative_tokens": 2}', _BATCH),
    ('{"num_speculative_tokens": 2}', _BATCH),
    ('{"model": "ngram", "num_speculative_tokens": 2}', _BATCH),
    ("{}", _BATCH),
    ("[]", _BATCH),
    ("5", _BATCH),
    ("ngram", _BATCH),
)


def _options() -> Iterator[Launch]:
    for option, values in _VALUES.items():
        for value in values:
            yield Launch(f"{option} {value}", flags={**SHARED, option: value}, env=MULTIMEM)
    for flags in _SEQUENCES:
        id_ = " ".join(f"{key} {value}" for key, value in flags.items())
        yield Launch(id_, flags={**SHARED, **flags}, env=MULTIMEM)
    for text, batch in _DRAFTS:
        flags = {"speculative-config": shlex.quote(text), **batch}
        yield Launch(f"drafts {text}", flags={**SHARED, **flags}, env=MULTIMEM)
    for flags in (
        {"spec-method": "ngram", "spec-tokens": "3"},
        {"spec-method": "ngram", "spec-tokens": "9"},
        {"spec-method": "mtp", "spec-tokens": "3"},
        {"spec-tokens": "3"},
        {"spec-method": "ngram"},
        {"spec-method": "ngrm", "spec-tokens": "3"},
        {"spec-method": "ngram", "speculative-config": '\'{"method": "ngram"}\''},
        {"speculative-config": f"'{{{_NGRAM}: 3}}' --speculative-config.method=suffx"},
    ):
        id_ = "drafts " + " ".join(f"{key} {value}" for key, value in flags.items())
        yield Launch(id_, flags={**SHARED, **_BATCH, **flags}, env=MULTIMEM)
    for tokens in ("1", "2", "3", "4"):
        flags = {"spec-method": "mtp", "spec-tokens": tokens, **_BATCH}
        flags = {**SHARED, **flags, "max-num-batched-tokens": "1k"}
        yield Launch(f"mtp {tokens}", model="mtp-model", flags=flags, env=MULTIMEM)
    for length in ("4096", "8192"):
        yield _launch(f"length {length}", model="long-model", max_model_len=length)


def _environments() -> Iterator[Launch]:
    for value in ("0", "1", "", "false", "00", " 0", "off"):
        env = {"INKLING_MULTIMEM_AR": value}
        yield Launch(f"multimem {value!r}", flags=SHARED, env=env)
    yield Launch("multimem unset", flags=SHARED)
    yield Launch("multimem unset without layout flag", "attention")
    for name, value in (
        ("VLLM_LORA_ENABLE_DUAL_STREAM", "1"),
        ("VLLM_LORA_ENABLE_DUAL_STREAM", "0"),
        ("VLLM_LORA_ENABLE_DUAL_STREAM", "true"),
        ("VLLM_LORA_ENABLE_DUAL_STREAM", ""),
        ("VLLM_LORA_DISABLE_PDL", "1"),
        ("LAMPORT_RS_SCONV", "false"),
        ("LAMPORT_RS_SCONV", "0"),
        ("INKLING_SPLIT_KV", "yes"),
        ("VLLM_USE_V2_MODEL_RUNNER", "1"),
        ("VLLM_USE_V2_MODEL_RUNNER", "0"),
        ("VLLM_USE_V2_MODEL_RUNNER", "true"),
        ("VLLM_BATCH_INVARIANT", "yes"),
        ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1"),
        ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "maybe"),
        ("VLLM_KV_CACHE_LAYOUT", "NHD"),
        ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"),
        ("VLLM_LOGGING_LEVEL", "DEBUG"),
        ("VLLM_OF_MY_OWN", "1"),
        ("VLLM_MULTIMEM_AR", "0"),
    ):
        env = {**MULTIMEM, name: value}
        yield Launch(f"{name}={value}", flags=SHARED, env=env)
    for name in ("VLLM_OF_MY_OWN", "INKLING_OF_MY_OWN", "VLLM_PLUGINS"):
        flags = {**SHARED, "fail-on-environ-validation": "true"}
        yield Launch(f"validated {name}", flags=flags, env={**MULTIMEM, name: "x"})
    flags = {**SHARED, "max-model-len": "8192"}
    env = {**MULTIMEM, "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    yield Launch("longer than the model", model="long-model", flags=flags, env=env)
    for runner in ("0", "1"):
        env = {**MULTIMEM, "VLLM_USE_V2_MODEL_RUNNER": runner}
        flags = {**SHARED, "enable-dbo": "true"}
        yield Launch(f"overlap on runner {runner}", flags=flags, env=env)


def _experts() -> Iterator[Launch]:
    """The flags of experts' formats against layouts of adapters."""
    adapters = ("packed", "packed-no-down", "packed-no-gate-up", "one-by-one", "for-vllm")
    for adapter in adapters:
        for model in ("model", "text-model"):
            for mixed, is_3d, shared in (
                (True, True, False),
                (True, True, True),
                (True, False, False),
                (False, True, False),
            ):
                flags = dict(SHARED) if shared else {}
                flags |= {"enable-mixed-moe-lora-format": "true"} if mixed else {}
                request = {"is_3d_lora_weight": "true"} if is_3d else {}
                id_ = f"experts {adapter} {model} {mixed:d}{is_3d:d}{shared:d}"
                yield Launch(id_, adapter, model, flags, MULTIMEM, request)
