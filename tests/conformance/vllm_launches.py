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
from conformance.vllm_values import FURTHER_VALUES, SEQUENCES, VALUES

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
    return [*launches.values(), *further_launches()]


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


def further_launches() -> Iterator[Launch]:
    """Yield launches that are in no pair, so that adding one leaves all pairs as they are."""
    for name in (*world.FURTHER_VARIANTS, *world.FURTHER_TENSORS):
        yield _launch(f"adapter {name}", name)
    for name in world.FURTHER_MODELS:
        yield _launch(f"model {name}", "attention", name)
    for option, values in FURTHER_VALUES.items():
        for value in values:
            yield Launch(f"{option} {value}", flags={**SHARED, option: value}, env=MULTIMEM)
    for level in ("debug", "Info", "verbose"):
        env = {**MULTIMEM, "VLLM_LOGGING_LEVEL": level}
        yield Launch(f"VLLM_LOGGING_LEVEL={level}", flags=SHARED, env=env)


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
    for option, values in VALUES.items():
        for value in values:
            yield Launch(f"{option} {value}", flags={**SHARED, option: value}, env=MULTIMEM)
    for flags in SEQUENCES:
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
