"""Adapters for PEFT, sound ones and mutated ones, all made by seed."""

import functools
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from adapter.conversion import convert, spec_of
from adapter.peft_models import train_nothing_but_fill
from factories import TINY, write_json, write_released_adapter

WRAPPER = "base_model.model."
ROOTS = {"mm": "model.language_model.", "text": "model."}

Tensors = dict[str, torch.Tensor]


@dataclass
class Made:
    """An adapter in memory: its tensors, its config, and how it was made."""

    kind: str
    tensors: Tensors
    config: dict[str, Any]
    made: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        return ROOTS[self.kind]

    def write(self, folder: Path) -> Path:
        """Write it and return its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        save_file(tensors, folder / "adapter_model.safetensors")
        write_json(folder / "adapter_config.json", self.config)
        return folder


ATTENTION = ["q_proj", "k_proj", "v_proj", "r_proj", "o_proj"]
DENSE = ["gate_proj", "up_proj", "down_proj"]
ROUTED = ["experts.gate_up_proj", "experts.down_proj"]
SHARED = [f"shared_experts.{name}" for name in DENSE]

TRAINED: dict[str, dict[str, Any]] = {
    "everything": {
        "target_modules": [*ATTENTION, *DENSE, "lm_head"],
        "target_parameters": [*ROUTED, *SHARED],
    },
    "attention": {"target_modules": ATTENTION},
    "experts": {"target_modules": [], "target_parameters": ["down_proj", "gate_up_proj"]},
    "gate_up alone": {"target_modules": ["o_proj"], "target_parameters": [ROUTED[0]]},
    "router": {"target_modules": ["q_proj"], "target_parameters": ["gate.weight", "proj"]},
    "embedding": {"target_modules": ["embed_tokens", "lm_head"], "save_embedding_layers": True},
    "DoRA": {"target_modules": ["q_proj", "down_proj"], "use_dora": True},
    "bias": {"target_modules": ["k_proj"], "lora_bias": True},
    "saved head": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "gate"]},
    "patterns": {
        "target_modules": ATTENTION,
        "target_parameters": ROUTED,
        "rank_pattern": {"experts.down_proj": 3, r"layers\.2\..*q_proj": 1},
        "alpha_pattern": {"o_proj": 3, "experts.gate_up_proj": 5},
        "use_rslora": True,
    },
}
"""Adapters that PEFT itself saves."""

FORMS = ("tinker", "vllm", "sglang")


@functools.cache
def _source(kind: str, name: str) -> tuple[Tensors, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = Path(temporary) / "released", Path(temporary) / "out"
        if name in TRAINED:
            train_nothing_but_fill(kind, out, r=2, lora_alpha=8, **TRAINED[name])
        elif name == "tinker":
            write_released_adapter(out)
        else:
            convert(write_released_adapter(folder), name, out, spec_of(TINY))
        config = json.loads((out / "adapter_config.json").read_text())
        if isinstance(config["target_modules"], list):
            config["target_modules"].sort()
        return load_file(out / "adapter_model.safetensors"), config


def source(kind: str, name: str, seed: int = 0) -> Made:
    """Return a sound adapter, every tensor with numbers of its own."""
    tensors, config = _source(kind, name)
    generator = torch.Generator().manual_seed(seed)
    fresh = {n: torch.randn(tensors[n].shape, generator=generator) for n in sorted(tensors)}
    return Made(kind, fresh, json.loads(json.dumps(config)), [f"{kind} {name}"])


Mutation = Callable[[Made, random.Random], None]
MUTATIONS: list[Mutation] = []


def _mutation(function: Mutation) -> Mutation:
    MUTATIONS.append(function)
    return function


def _rename(made: Made, change: Callable[[str], str], names: list[str] | None = None) -> None:
    for name in list(made.tensors) if names is None else names:
        made.tensors[change(name)] = made.tensors.pop(name)


def _some(made: Made, rng: random.Random) -> list[str]:
    names = sorted(made.tensors)
    return rng.sample(names, min(len(names), rng.choice([1, 2, 5])))


def _modules(made: Made) -> list[str]:
    return sorted({name.rpartition(".lora_")[0] for name in made.tensors if ".lora_A" in name})


@_mutation
def drop_tensors(made: Made, rng: random.Random) -> None:
    for name in _some(made, rng):
        del made.tensors[name]


@_mutation
def drop_factors(made: Made, rng: random.Random) -> None:
    letter = rng.choice("AB")
    for name in [n for n in sorted(made.tensors) if f".lora_{letter}." in n and rng.random() < 0.2]:
        del made.tensors[name]


@_mutation
def drop_a_layer(made: Made, rng: random.Random) -> None:
    layer = rng.randrange(4)
    for name in [name for name in made.tensors if f"layers.{layer}." in name]:
        del made.tensors[name]


@_mutation
def misname(made: Made, rng: random.Random) -> None:
    module = rng.choice(_modules(made) or [""])
    if module:
        names = [name for name in made.tensors if name.startswith(module + ".")]
        _rename(made, lambda name: name.replace(module, module[:-1] + "x"), names)


@_mutation
def move_a_layer(made: Made, rng: random.Random) -> None:
    old, new = rng.randrange(4), rng.choice([0, 1, 2, 3, 9])
    names = [name for name in made.tensors if f"layers.{old}." in name]
    _rename(made, lambda name: name.replace(f"layers.{old}.", f"layers.{new}."), names)


@_mutation
def change_the_prefix(made: Made, rng: random.Random) -> None:
    change = rng.choice(
        [
            lambda name: name.removeprefix(WRAPPER),
            lambda name: WRAPPER + name,
            lambda name: name.replace("language_model.", ""),
            lambda name: name.replace("model.layers", "model.language_model.layers"),
            lambda name: name.replace("language_model.", "llm."),
            lambda name: name.replace("language_model.", "model.llm.", 1),
            lambda name: "model." + name,
            lambda name: name.replace("base_model.model.model.", "base_model.model."),
        ]
    )
    _rename(made, change)


@_mutation
def name_the_adapter(made: Made, rng: random.Random) -> None:
    ending, word = rng.choice([".weight", ""]), rng.choice(["default", "other"])
    if ending:
        _rename(made, lambda name: name.replace(".weight", f".{word}.weight"))
    else:
        _rename(made, lambda name: f"{name}.{word}", _some(made, rng))


@_mutation
def spell_raw(made: Made, rng: random.Random) -> None:
    letters = {"q": "wq_du", "k": "wk_dv", "v": "wv_dv", "r": "wr_du", "o": "wo_ud"}
    raw = {f"{letter}_proj": name for letter, name in letters.items()}
    raw |= {"language_model.": "llm."} if rng.random() < 0.7 else {}
    for old, new in raw.items():
        if rng.random() < 0.8:
            _rename(made, lambda name, old=old, new=new: name.replace(old, new))
    if rng.random() < 0.5:
        _rename(made, lambda name: name.replace("self_attn.", "attn."))


@_mutation
def copy_under_another_name(made: Made, rng: random.Random) -> None:
    changes = [
        lambda name: name.removeprefix(WRAPPER),
        lambda name: name.replace("language_model.", "llm."),
        lambda name: name.replace(".weight", ".default.weight"),
        lambda name: name.removeprefix(WRAPPER).replace("language_model.", "llm."),
        lambda name: name.replace("self_attn.q_proj", "attn.wq_du"),
    ]
    for name in _some(made, rng):
        for change in rng.sample(changes, rng.choice([1, 2])):
            made.tensors.setdefault(change(name), _fresh(made.tensors[name].shape, rng))


@_mutation
def transpose(made: Made, rng: random.Random) -> None:
    for name in _some(made, rng)[:1]:
        made.tensors[name] = made.tensors[name].flatten().reshape(made.tensors[name].shape[::-1])


@_mutation
def cut_rows(made: Made, rng: random.Random) -> None:
    for name in _some(made, rng)[:1]:
        made.tensors[name] = made.tensors[name][:-1].clone()


@_mutation
def change_the_targets(made: Made, rng: random.Random) -> None:
    targets = made.config.get("target_modules")
    choice = rng.randrange(7)
    if choice == 0 and isinstance(targets, list) and targets:
        targets.remove(rng.choice(sorted(targets)))
    elif choice == 1 and isinstance(targets, list):
        targets.append(rng.choice(["no_such", "v_proj", "embed_tokens", "projection", "conv1d"]))
    elif choice == 2:
        made.config["target_modules"] = "all-linear"
    elif choice == 3:
        made.config["target_modules"] = rng.choice(
            [r".*\.[qk]_proj", r"model\.layers\..*o_proj", "q_proj", r".*layers\.[12]\..*proj", "["]
        )
    elif choice == 4:
        modules = [name.removeprefix(WRAPPER) for name in _modules(made)]
        made.config["target_modules"] = modules if rng.random() < 0.7 else modules[::2]
    elif choice == 5:
        made.config["target_modules"] = None
    else:
        made.config["target_modules"] = [
            rng.choice(["mlp", "experts", "layers.1.self_attn.q_proj", "gate", "shared_experts"])
        ]


@_mutation
def change_the_parameters(made: Made, rng: random.Random) -> None:
    made.config["target_parameters"] = rng.choice(
        [
            None,
            [],
            ["experts.gate_up_proj"],
            ["experts.down_proj"],
            ["down_proj"],
            ["gate_proj", "down_proj"],
            ["layers.1.mlp.experts.gate_up_proj", "layers.2.mlp.shared_experts.up_proj"],
            ["q_proj.weight"],
            ["global_scale"],
            ["k_sconv.conv1d.weight"],
            ["embed_tokens.weight"],
            [*ROUTED, *SHARED, "no.such"],
        ]
    )


@_mutation
def change_a_setting(made: Made, rng: random.Random) -> None:
    key, value = rng.choice(
        [
            ("r", 3),
            ("use_dora", True),
            ("lora_dropout", 0.1),
            ("lora_bias", True),
            ("fan_in_fan_out", True),
            ("rank_pattern", None),
            ("alpha_pattern", None),
            ("rank_pattern", {"q_proj": 3}),
            ("alpha_pattern", {"wq_du": 3, "k_proj": 2}),
            ("exclude_modules", ["q_proj", "lm_head"]),
            ("exclude_modules", r".*layers\.1\..*"),
            ("layers_to_transform", [0, 2]),
            ("layers_to_transform", 1),
            ("layers_pattern", "layers"),
            ("init_lora_weights", False),
            ("init_lora_weights", "gaussian"),
            ("init_lora_weights", "nonsense"),
            ("modules_to_save", ["lm_head"]),
            ("modules_to_save", ["embed_norm"]),
            ("modules_to_save", ["head"]),
            ("modules_to_save", ["no_such"]),
            ("trainable_token_indices", [1, 5]),
            ("task_type", "CAUSAL_LM"),
            ("task_type", "NONSENSE"),
            ("peft_type", "NONSENSE"),
            ("bias", "all"),
            ("lora_alpha", 0),
            ("use_rslora", True),
            ("no_such_key", 1),
        ]
    )
    made.config[key] = value
    if key == "init_lora_weights":
        made.made.append(str(value))


@_mutation
def add_whole_weights(made: Made, rng: random.Random) -> None:
    hidden, vocabulary = TINY.hidden, TINY.vocab
    name, shape = rng.choice(
        [
            ("lm_head.weight", (vocabulary, hidden)),
            ("lm_head.base_layer.weight", (vocabulary, hidden)),
            (f"{made.root}norm.weight", (hidden,)),
            (f"{made.root}norm.weight", (hidden + 1,)),
            (f"{made.root}layers.0.self_attn.q_proj.base_layer.weight", (TINY.query, hidden)),
            (f"{made.root}embed_tokens.embed_norm.weight", (hidden,)),
            (f"{made.root}layers.1.mlp.gate.e_score_correction_bias", (TINY.experts,)),
            (f"{made.root}embed_tokens.token_adapter.trainable_tokens_delta", (2, hidden)),
            (f"{made.root}layers.0.self_attn.q_proj.lora_magnitude_vector", (TINY.query,)),
            (f"{made.root}layers.1.self_attn.k_proj.lora_B.bias", (TINY.key(1),)),
            ("model.vision_tower.encoder_layers.0.projection.lora_A.weight", (2, 12)),
        ]
    )
    made.tensors[WRAPPER + name] = _fresh(shape, rng)


def _fresh(shape: Sequence[int], rng: random.Random) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rng.randrange(2**31)))


def random_case(seed: int) -> Made:
    """Return an adapter with none to three mutations."""
    rng = random.Random(seed)
    kind = rng.choice(sorted(ROOTS))
    name = rng.choice([*TRAINED, "everything", "everything", *FORMS])
    source_kind = kind if rng.random() < 0.85 else rng.choice(sorted(ROOTS))
    made = source(source_kind, name, seed)
    made.kind = kind
    made.made.insert(0, f"on {kind}")
    for mutation in rng.choices(MUTATIONS, k=rng.choice([0, 1, 1, 1, 2, 2, 3])):
        mutation(made, rng)
        made.made.append(mutation.__name__)
    return made
