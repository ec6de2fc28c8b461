"""What PEFT on transformers does with an adapter, module by module, and the rules that say it."""
