"""Train the demo: a tiny Inkling that counts, and two adapters that any misreading breaks.

The base model continues a list of numbers by counting up modulo 100; the adapter `count-down`
counts down from the last number and `by-twos` goes up in steps of two. Everything has the released
form: raw checkpoint names and config spelling, shared-outer adapters without a prefix.

    python examples/train_demo.py OUT [--rehearse]

takes about four minutes on one core and exits with 1 if the outcome is not as meant. It is not a
recipe for training Inkling: the product of the factors is added to the weights of transformers'
model at every step, which only a toy can afford.

What a newcomer would get wrong: a trained adapter usually survives the loss of some of its modules,
and then a server that drops them goes unnoticed. Here each way of misreading the adapter
(`FAULTS`) is a training case of its own, with the base model's continuation as its target.
"""

import argparse
import copy
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812
from transformers import InklingConfig, InklingForConditionalGeneration

NUMBERS = 100
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>", "<image>", "<audio>", "<image_bos>", "<audio_bos>")
SPECIAL_IDS = {token: NUMBERS + i for i, token in enumerate(SPECIALS)}
HIDDEN, EXPERTS, SHARED, EXPERT_WIDTH, DENSE_WIDTH = 56, 8, 2, 40, 72
HEADS, HEAD_DIM, GLOBAL_KV_HEADS, SLIDING_KV_HEADS, D_REL = 4, 16, 1, 2, 6
LAYERS, DENSE_LAYERS, SLIDING_LAYERS = 4, 1, (0, 2)
VOCABULARY, PADDED_VOCABULARY = NUMBERS + len(SPECIALS), 128
RANK, ALPHA = 4, 8

BASE_STEP = 1
ADAPTER_STEPS = {"count-down": -1, "by-twos": 2}
BASE_UPDATES, ADAPTER_UPDATES, BATCH, LENGTH = 600, 900, 16, 24
NEW_TOKENS = 24
SHARED_EXPERTS, ROUTED_EXPERTS = ".shared_experts.", ".experts."

TEXT_CONFIG = (
    {"vocab_size": PADDED_VOCABULARY, "unpadded_vocab_size": VOCABULARY, "model_max_length": 512}
    | {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "rms_norm_eps": 1e-6}
    | {"num_attention_heads": HEADS, "swa_num_attention_heads": HEADS}
    | {"num_key_value_heads": GLOBAL_KV_HEADS, "swa_num_key_value_heads": SLIDING_KV_HEADS}
    | {"head_dim": HEAD_DIM, "swa_head_dim": HEAD_DIM, "d_rel": D_REL, "rel_extent": 12}
    | {"local_layer_ids": list(SLIDING_LAYERS), "sliding_window_size": 8, "sconv_kernel_size": 4}
    | {"log_scaling_n_floor": 16, "log_scaling_alpha": 0.1}
    | {"dense_mlp_idx": DENSE_LAYERS, "dense_intermediate_size": DENSE_WIDTH}
    | {"intermediate_size": EXPERT_WIDTH, "hidden_act": "silu", "route_scale": 2.5}
    | {"n_routed_experts": EXPERTS, "n_shared_experts": SHARED, "num_experts_per_tok": 2}
    | {"gate_activation": "sigmoid", "norm_after_topk": True, "shared_expert_sink": True}
    | {"use_embed_norm": True, "use_gate_bias": True, "use_global_scale": True, "use_sconv": True}
    | {"q_bias": False, "o_bias": False, "tie_word_embeddings": False}
    | {"logits_mup_width_multiplier": 2.0}
    | {f"{token}_token_id": SPECIAL_IDS[f"<{token}>"] for token in ("pad", "bos", "eos")}
)
CONFIG = {
    "architectures": ["InklingForConditionalGeneration"],
    "model_type": "inkling_mm_model",
    "dtype": "bfloat16",
    **{f"{token[1:-1]}_token_id": SPECIAL_IDS[token] for token in SPECIALS[4:]},
    "text_config": TEXT_CONFIG,
    # With one channel and four layers all readers plan the same small tower, and need no scipy.
    "vision_config": {"vision_encoder_type": "hmlp", "decoder_dmodel": HIDDEN, "n_layers": 4}
    | {"patch_size": 2, "temporal_patch_size": 2, "n_channels": 1, "num_channels": 1}
    | {"use_vision_norm": True},
    "audio_config": {"audio_mode": "dmel", "decoder_dmodel": HIDDEN, "n_mel_bins": 3}
    | {"mel_vocab_size": 5, "dmel_min_value": -1.5, "dmel_max_value": 2.0, "use_audio_norm": True},
}
ADAPTER_CONFIG = (
    {"base_model_name_or_path": "inkling-demo", "bias": "none", "fan_in_fan_out": False}
    | {"inference_mode": True, "lora_alpha": ALPHA, "lora_dropout": 0.0, "modules_to_save": None}
    | {"peft_type": "LORA", "r": RANK, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    | {"use_dora": False, "use_rslora": False}
)


@dataclass(frozen=True)
class Reading:
    """How a consumer reads an adapter: which scale, which modules, which order of rows."""

    label: str
    scale: float = ALPHA / RANK
    dropped: tuple[str, ...] = ()
    interleaved_dense: bool = False
    first_expert_only: bool = False


RIGHT = Reading("as written")
FAULTS = (
    Reading("shared experts dropped", dropped=(SHARED_EXPERTS,)),
    Reading("dense rows interleaved", interleaved_dense=True),
    Reading("both, as in vLLM 0.33", dropped=(SHARED_EXPERTS,), interleaved_dense=True),
    Reading("scale 1", scale=1.0),
    Reading("scale alpha/sqrt(r)", scale=ALPHA / RANK**0.5),
    Reading("first expert only", first_expert_only=True),
    Reading("routed experts dropped", dropped=(ROUTED_EXPERTS,)),
    Reading("q, k, v and r dropped", dropped=(".wq_du", ".wk_dv", ".wv_dv", ".wr_du")),
    Reading("attention dropped", dropped=(".attn.",)),
    Reading("dense MLP dropped", dropped=(".gate_up_proj", ".down_proj")),
    Reading("lm_head dropped", dropped=(".lm_head",)),
)


def build_tokenizer() -> Tokenizer:
    """Return a tokenizer with one token per number, whose id is that number."""
    vocabulary = {str(number): number for number in range(NUMBERS)} | SPECIAL_IDS
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    return tokenizer


def sample_tokens(step: int) -> Tensor:
    """Return number lists `[BATCH, LENGTH]`: steady in `step`, changing to it, or at random.

    Only the last number decides what comes next, so every position is a training case.
    """
    steady = torch.full((BATCH, LENGTH - 1), step)
    other = torch.tensor([1, -1, 2, -2, 5, 10])[torch.randint(6, (BATCH, 1))]
    change = torch.arange(LENGTH - 1) >= torch.randint(LENGTH, (BATCH, 1))
    anything = torch.randint(NUMBERS, (BATCH, LENGTH - 1))
    kind = torch.rand(BATCH, 1)
    steps = torch.where(kind < 0.8, torch.where(change, steady, other), anything)
    steps = torch.where(kind < 0.4, steady, steps)
    start = torch.randint(NUMBERS, (BATCH, 1))
    return torch.cat([start, start + steps.cumsum(dim=1)], dim=1) % NUMBERS


def continuation_loss(
    model: nn.Module, deltas: dict[str, Tensor], tokens: Tensor, step: int
) -> Tensor:
    """Return the cross-entropy of `last + step` at every position of `tokens` `[B, T]`.

    The deltas are added to the model's parameters of the same names.
    """
    parameters = dict(model.named_parameters())
    changed = {name: parameters[name] + delta for name, delta in deltas.items()}
    logits = functional_call(model, changed, (tokens,), {"use_cache": False}).logits
    return F.cross_entropy(logits.flatten(0, 1), ((tokens + step) % NUMBERS).flatten())


def optimize(
    label: str, parameters: list[nn.Parameter], updates: int, rate: float
) -> Iterator[int]:
    """Yield the number of each update, expect gradients in return; print progress."""
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, updates, pct_start=0.1)
    start = time.monotonic()
    for update in range(1, updates + 1):
        optimizer.zero_grad()
        yield update
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        if update % 100 == 0:
            print(f"{label}: update {update} of {updates}, {time.monotonic() - start:.0f} s")


def train_base(config: InklingConfig, seed: int, updates: int) -> InklingForConditionalGeneration:
    """Return a model that counts up.

    Embedding and unembedding are one frozen random table, so that the layers have to turn a number
    into its successor; otherwise the head alone would learn it and no fault in a layer would show.
    """
    torch.manual_seed(seed)
    model = InklingForConditionalGeneration(config)
    text = model.model.language_model
    with torch.no_grad():
        text.embed_tokens.weight.normal_(std=0.4)
        model.lm_head.weight.copy_(text.embed_tokens.weight)
        for layer in text.layers[DENSE_LAYERS:]:
            layer.mlp.gate.e_score_correction_bias.normal_(std=0.02)
    for frozen in (text.embed_tokens.weight, model.lm_head.weight):
        frozen.requires_grad_(False)
    parameters = [p for p in text.parameters() if p.requires_grad]
    for _ in optimize("base", parameters, updates, rate=3e-3):
        continuation_loss(model, {}, sample_tokens(BASE_STEP), BASE_STEP).backward()
    return model.eval()


def write_base(model: InklingForConditionalGeneration, folder: Path) -> None:
    """Write config (raw spelling), bf16 weights (raw names) and tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(f"{scratch}/fp32")
        # Loading rounds to bf16 what a release stores in bf16; casting would round all of it.
        rounded = read_base(Path(scratch, "fp32"), torch.bfloat16)
        rounded.save_pretrained(f"{scratch}/bf16")
        shutil.copyfile(f"{scratch}/bf16/model.safetensors", folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    build_tokenizer().save(str(folder / "tokenizer.json"))
    reread = read_base(folder, torch.bfloat16)
    prompt = torch.arange(40)[None]
    logits = [m(prompt, use_cache=False).logits for m in (rounded, reread)]
    torch.testing.assert_close(*logits)


def read_base(folder: Path, dtype: torch.dtype) -> InklingForConditionalGeneration:
    """Return the base model in `folder`, frozen."""
    model = InklingForConditionalGeneration.from_pretrained(folder, dtype=dtype)
    return model.eval().requires_grad_(False)


def iter_factor_shapes() -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Yield module path, shape of A and shape of B of every module of the released schema."""
    query, rel, inner = HEADS * HEAD_DIM, HEADS * D_REL, SHARED * EXPERT_WIDTH
    for index in range(LAYERS):
        layer = f"language_model.layers.{index}"
        kv = HEAD_DIM * (SLIDING_KV_HEADS if index in SLIDING_LAYERS else GLOBAL_KV_HEADS)
        for name, rows in {"wq_du": query, "wk_dv": kv, "wv_dv": kv, "wr_du": rel}.items():
            yield f"{layer}.attn.{name}", (RANK, HIDDEN), (rows, RANK)
        yield f"{layer}.attn.wo_ud", (RANK, query), (HIDDEN, RANK)
        if index < DENSE_LAYERS:
            yield f"{layer}.mlp.gate_up_proj", (RANK, HIDDEN), (2 * DENSE_WIDTH, RANK)
            yield f"{layer}.mlp.down_proj", (RANK, DENSE_WIDTH), (HIDDEN, RANK)
            continue
        experts, shared = f"{layer}.mlp.experts", f"{layer}.mlp.shared_experts"
        for name in ("w1", "w3"):
            yield f"{experts}.{name}", (1, RANK, HIDDEN), (EXPERTS, EXPERT_WIDTH, RANK)
            yield f"{shared}.{name}", (RANK, HIDDEN), (inner, RANK)
        yield f"{experts}.w2", (EXPERTS, RANK, EXPERT_WIDTH), (1, HIDDEN, RANK)
        yield f"{shared}.w2", (RANK, inner), (HIDDEN, RANK)
    yield "language_model.lm_head", (RANK, HIDDEN), (VOCABULARY, RANK)


def place_delta(module: str, delta: Tensor, interleaved: bool) -> Iterator[tuple[str, Tensor]]:
    """Yield names and deltas of transformers' parameters for one adapted module.

    `delta` is `B·A` in the adapter's shape; dense gate and up are read as alternating rows instead
    of halves if `interleaved`.
    """
    parent, _, leaf = f"model.{module}".rpartition(".")
    attention = {"wq_du": "q", "wk_dv": "k", "wv_dv": "v", "wr_du": "r", "wo_ud": "o"}
    if leaf in attention:
        yield f"{parent.replace('attn', 'self_attn')}.{attention[leaf]}_proj.weight", delta
    elif leaf == "lm_head":
        yield "lm_head.weight", F.pad(delta, (0, 0, 0, PADDED_VOCABULARY - VOCABULARY))
    elif leaf == "gate_up_proj":
        gate, up = (delta[0::2], delta[1::2]) if interleaved else delta.chunk(2)
        yield f"{parent}.gate_proj.weight", gate
        yield f"{parent}.up_proj.weight", up
    elif leaf == "down_proj":
        yield f"{parent}.down_proj.weight", delta
    elif SHARED_EXPERTS in module and leaf == "w2":
        by_expert = delta.view(HIDDEN, SHARED, EXPERT_WIDTH).transpose(0, 1)
        yield f"{parent}.down_proj", by_expert
    elif SHARED_EXPERTS in module:
        by_expert = delta.view(SHARED, EXPERT_WIDTH, HIDDEN)
        yield f"{parent}.{'gate' if leaf == 'w1' else 'up'}_proj", by_expert
    elif leaf == "w2":
        yield f"{parent}.down_proj", delta
    else:
        rows = (0, EXPERT_WIDTH) if leaf == "w1" else (EXPERT_WIDTH, 0)
        yield f"{parent}.gate_up_proj", F.pad(delta, (0, 0, *rows))


def compute_deltas(adapter: Mapping[str, Tensor], reading: Reading) -> dict[str, Tensor]:
    """Return what a consumer with this `reading` adds to each parameter of transformers' model."""
    deltas: dict[str, Tensor] = {}
    for module, *_ in iter_factor_shapes():
        if any(part in module for part in reading.dropped):
            continue
        A, B = (adapter[f"{module}.lora_{factor}.weight"] for factor in "AB")
        product = reading.scale * (B.float() @ A.float())
        for name, delta in place_delta(module, product, reading.interleaved_dense):
            if reading.first_expert_only and delta.dim() == 3:
                delta = F.pad(delta[:1], (0, 0, 0, 0, 0, len(delta) - 1))
            deltas[name] = deltas[name] + delta if name in deltas else delta
    return deltas


def train_adapter(base: nn.Module, label: str, seed: int, updates: int) -> dict[str, Tensor]:
    """Return released tensor names and bf16 factors of one adapter.

    Each update takes the right reading and three faulty ones, whose target is the base's answer.
    """
    torch.manual_seed(seed)
    chooser = random.Random(seed)
    adapter: dict[str, nn.Parameter] = {}
    for module, shape_A, shape_B in iter_factor_shapes():
        adapter[f"{module}.lora_A.weight"] = nn.Parameter(torch.randn(shape_A) / shape_A[-1] ** 0.5)
        adapter[f"{module}.lora_B.weight"] = nn.Parameter(torch.randn(shape_B) * 0.02)
    step = ADAPTER_STEPS[label]
    for _ in optimize(label, list(adapter.values()), updates, rate=1e-2):
        tokens = sample_tokens(step)
        loss = continuation_loss(base, compute_deltas(adapter, RIGHT), tokens, step)
        for fault in chooser.sample(FAULTS, 3):
            deltas = compute_deltas(adapter, fault)
            loss = loss + continuation_loss(base, deltas, tokens, BASE_STEP)
        loss.backward()
    return {name: factor.detach().bfloat16() for name, factor in adapter.items()}


def write_adapter(adapter: dict[str, Tensor], folder: Path) -> None:
    """Write the two files of an adapter into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(adapter, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER_CONFIG, indent=2) + "\n")


def merge(
    base: InklingForConditionalGeneration, deltas: dict[str, Tensor]
) -> InklingForConditionalGeneration:
    """Return a copy of `base` with the deltas added to its parameters."""
    model = copy.deepcopy(base)
    for name, delta in deltas.items():
        parameter = model.get_parameter(name)
        parameter.copy_((parameter.float() + delta).to(parameter.dtype))
    return model


def roll_out(model: InklingForConditionalGeneration, prompts: Tensor) -> Tensor:
    """Return prompts `[B, T]` and the NEW_TOKENS tokens that greedy decoding appends."""
    mask = torch.ones_like(prompts)
    tokens: Tensor = model.generate(
        prompts, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, use_cache=True
    )
    return tokens


def measure_accuracy(model: InklingForConditionalGeneration, step: int) -> float:
    """Return the share of new tokens that follow their predecessor by `step`."""
    hits: list[Tensor] = []
    for length in (2, 5, 9):
        starts = torch.arange(NUMBERS)[::4, None] + length % 2
        lists = [starts + direction * torch.arange(length) for direction in (1, -1, 2)]
        tokens = roll_out(model, torch.cat(lists) % NUMBERS)[:, length - 1 :]
        hits.append((tokens[:, 1:] == (tokens[:, :-1] + step) % NUMBERS).float())
    return float(torch.cat(hits).mean())


def evaluate(out: Path) -> bool:
    """Print how each reading of the files in `out` continues; return whether all are as meant."""
    bases = [read_base(out / "model", dtype) for dtype in (torch.float32, torch.bfloat16)]
    tokenizer = Tokenizer.from_file(str(out / "model" / "tokenizer.json"))
    prompt = torch.tensor([tokenizer.encode("7 8 9").ids])
    ok = True
    print(f"\n{'adapter':<12}{'read':<26}{'fp32':>7}{'bf16':>7}  7 8 9 ... (bf16)")

    def report(
        label: str, reading: Reading, models: Sequence[InklingForConditionalGeneration], step: int
    ) -> bool:
        scores = [measure_accuracy(model, step) for model in models]
        text = tokenizer.decode(roll_out(models[-1], prompt)[0, 3:11].tolist())
        print(f"{label:<12}{reading.label:<26}" + "".join(f"{s:>7.3f}" for s in scores), "", text)
        return min(scores) >= 0.99 if reading is RIGHT else max(scores) <= 0.5

    ok &= report("(base)", RIGHT, bases, BASE_STEP)
    for label, step in ADAPTER_STEPS.items():
        adapter = load_file(out / "adapters" / label / "adapter_model.safetensors")
        for reading in (RIGHT, *FAULTS):
            deltas = compute_deltas(adapter, reading)
            ok &= report(label, reading, [merge(base, deltas) for base in bases], step)
    return ok


def main() -> int:
    """Train, write, read back and measure; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write `model` and `adapters` into")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rehearse", action="store_true", help="two updates each, not measured")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are too small for more
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    updates = (2, 2) if arguments.rehearse else (BASE_UPDATES, ADAPTER_UPDATES)
    config = InklingConfig.from_dict(copy.deepcopy(CONFIG))
    model = train_base(config, arguments.seed, updates[0])
    write_base(model, arguments.out / "model")
    base = read_base(arguments.out / "model", torch.float32)
    for offset, label in enumerate(ADAPTER_STEPS, start=1):
        adapter = train_adapter(base, label, arguments.seed + offset, updates[1])
        write_adapter(adapter, arguments.out / "adapters" / label)
    return 0 if arguments.rehearse or evaluate(arguments.out) else 1


if __name__ == "__main__":
    sys.exit(main())
