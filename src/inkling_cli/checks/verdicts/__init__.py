"""What each consumer really does with an adapter, module by module: the answer of check-adapter.

Brings together the rules over adapters, the rules over launches and the effects that each
consumer has on every module. No rules here.
"""
