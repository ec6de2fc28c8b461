"""Commands with findings, run in the workspace: reports of every kind that there is."""

HUB = ("vllm", "serve", "org/Inkling", "--enable-lora", "--lora-modules", "a=org/adapter")
COMMANDS = {
    "a clean launch": ("check-config", "clean.sh"),
    "findings of every severity": ("check-config", "serve.sh"),
    "a launch that an option file makes": ("check-config", "launch.yaml"),
    "SGLang": ("check-config", "sglang.yaml", "--engine", "sglang"),
    "files without a launch": (
        *("check-config", "--skip-others", "serve.sh", "model/config.json"),
        "adapters/released/adapter_config.json",
    ),
    "no launch at all": (*("check-config", "--skip-others"), "model/config.json"),
    "names with control characters": ("check-config", "odd.sh"),
    "hub ids": ("check-config", "--", *HUB),
    "an adapter from outside the launch": (
        *("check-config", "--lora", "b=adapters/rank32", "--", *HUB),
    ),
    "a model that is no Inkling": ("check-config", "--", "vllm", "serve", "llama"),
    "an unreadable model": ("check-config", "--", "vllm", "serve", "torn"),
    "no model": ("check-config", "--engine", "sglang", "--", "--trust-remote-code"),
    "an adapter": ("check-adapter", "adapters/released", "--model", "model"),
    "an adapter for one consumer": ("check-adapter", "adapters/for-vllm", "--engine", "vllm"),
    "several adapters": ("check-adapter", "adapters/for-vllm", "adapters/one-by-one"),
    "a clean adapter": ("check-adapter", "adapters/released", "--engine", "native"),
}
