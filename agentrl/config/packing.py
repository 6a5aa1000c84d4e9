"""Whether the learner can pack sequences of a model, as far as its structure shows: no weights are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from agentrl.errors import ConfigError, catch

PACKED_LAYERS = {"full_attention", "sliding_attention", "dense", "sparse", "mlp", "moe"}
"""Types of layers that mix tokens in an attention that the learner replaces with its own, or nowhere."""
PROBE = "agentrl_probe"
TOKENS = 4
LARGE = 1024.0
"""Beyond the soft caps of all models; a power of two, which all types of numbers hold exactly."""
KNOWN_ARGUMENTS = {"position_ids", "cache_position"}
"""Of an attention, those that are tensors and change nothing: the learner knows the positions."""
MORE = "its outputs depend on more than hidden states and a matrix: "


def unpackable(model: Any, head: Any) -> str:
    """Return why a model of transformers cannot be trained over packed sequences; "" if nothing shows it.

    `head` is the weight with which the learner computes outputs: that of the language model's head, or a critic's own.
    The model may be on the meta device. A few tokens pass through it, with an attention that only looks at its inputs.
    """
    kinds = {*(getattr(model.config.get_text_config(), "layer_types", None) or ())}
    if others := sorted(kinds - PACKED_LAYERS):
        return f"it has layers of type {', '.join(others)}, in which packed sequences cannot be kept apart"
    if not kinds and getattr(model, "_is_stateful", False):
        return "it carries a state from token to token, which packed sequences would share"
    if {module.is_causal for module in model.modules() if hasattr(module, "is_causal")} == {False}:
        return "its attention is bidirectional, and a token would see those that it has to predict"
    own, layer = [""], model.get_output_embeddings()
    if getattr(layer, "weight", None) is not head:  # a critic has nothing beside the base model but its own head
        own = [f"{name}." for name, module in model.named_modules() if getattr(module, "weight", None) is head]
        layer = None
    known = {id(parameter) for parameter in (head, *model.base_model.parameters())}
    outside = [name for name, parameter in model.named_parameters() if id(parameter) not in known]
    if beside := [name for name in outside if name.startswith(tuple(own))]:
        return f"{MORE}on {', '.join(beside)}"
    probed = catch(_probe, model, head, layer)
    return str(probed.error) if isinstance(probed.error, ConfigError) else ""  # other errors are the learner's to see


def unapplied(query: Any, key: Any, value: Any, mask: Any, others: Mapping[str, Any]) -> str:
    """Return what the inputs of an attention have that the learner's own does not apply; "" if there is nothing."""
    sizes = [states.shape[-1] for states in (query, key, value)]
    if len({*sizes}) > 1:
        return "the heads of its queries, keys and values differ in size ({}, {} and {})".format(*sizes)
    if mask is not None:
        return "its attention has a mask of its own, which packed sequences replace"
    if names := sorted(name for name, given in others.items() if _matters(name, given)):
        return f"its attention depends on {', '.join(names)}, which the attention over packed sequences does not apply"
    return ""


def _matters(name: str, given: Any) -> bool:
    """Return whether an argument changes what an attention computes. Switches change what it returns beside that."""
    if name == "is_causal":
        return given is False
    is_off = given is None or isinstance(given, bool) or (isinstance(given, int | float) and given == 0)
    return not is_off and name not in KNOWN_ARGUMENTS


def _probe(model: Any, head: Any, layer: Any) -> None:
    """Raise ConfigError if the learner's attention, or `layer` and nothing after it, does not compute what is asked."""
    import torch

    ids = torch.zeros(1, TOKENS, dtype=torch.long, device=head.device)
    probe = _Probe()
    with torch.no_grad(), _exchanged(model, probe, is_meta=head.is_meta):
        positions = torch.arange(TOKENS, device=head.device)[None]
        states = model.base_model(input_ids=ids, position_ids=positions, use_cache=False, attention=probe)
        if not probe.windows:
            raise ConfigError("its attention cannot be exchanged, and packed sequences would see each other")
        if (window := _window(model.config.get_text_config())) and not any(probe.windows):
            raise ConfigError(f"its sliding window of {window} tokens is part of its masks alone")
        if layer is not None:
            _check_head(model, layer, ids, states, probe)


@dataclass
class _Probe:
    """An attention that only looks at its inputs. `windows`: the sliding windows with which it was called."""

    windows: set[int | None] = field(default_factory=set)

    def attend(
        self, _module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, **arguments: Any
    ) -> tuple[Any, None]:
        """Return the queries for values. Raises ConfigError if the learner's attention would not do."""
        if arguments.pop("attention", None) is not self:
            raise ConfigError("its layers do not pass `attention` on, and packed sequences would see each other")
        self.windows.add(arguments.pop("sliding_window", None))
        # Dropout is that of training mode, which the learner leaves.
        others = {name: given for name, given in arguments.items() if name not in ("scaling", "dropout")}
        if why := unapplied(query, key, value, attention_mask, others):
            raise ConfigError(why)
        return query.transpose(1, 2).contiguous(), None


@contextmanager
def _exchanged(model: Any, probe: _Probe, *, is_meta: bool) -> Iterator[None]:
    """Let a model call the attention of `probe`, for a while."""
    from transformers import AttentionInterface

    AttentionInterface.register(PROBE, probe.attend)
    attention, experts = model.config._attn_implementation, model.config._experts_implementation
    with ExitStack() as stack:
        if model._can_set_attn_implementation():
            stack.callback(model.set_attn_implementation, attention)
            model.set_attn_implementation(PROBE)
        if is_meta:  # others choose experts by values, which there are none of, or take bfloat16 alone
            stack.callback(model.set_experts_implementation, experts)
            model.set_experts_implementation("batched_mm")
        yield


def _check_head(model: Any, layer: Any, ids: Any, states: Any, probe: _Probe) -> None:
    """Raise ConfigError unless the model's logits are what `layer` computes from its hidden states, as they are."""
    import torch

    numbers = (torch.arange(states.last_hidden_state.numel()) % 3 - 1) * LARGE
    states.last_hidden_state = hidden = numbers.view(states.last_hidden_state.shape)
    logits = hidden.roll(1)
    bases: list[Any] = []
    inputs: list[Any] = []

    def base(*_args: Any, **_options: Any) -> Any:
        bases.append(states)
        return states

    def product(given: Any) -> Any:
        inputs.append(given)
        return logits

    with _replaced(model.base_model, base), _replaced(layer, product):
        result = model(input_ids=ids, use_cache=False, attention=probe).logits
    if bases and inputs and _differ(inputs[0], hidden):  # OPT calls a part of its base model
        raise ConfigError(f"{MORE}its hidden states are changed before the product")
    if inputs and _differ(result, logits):
        raise ConfigError(f"{MORE}its logits are scaled or capped")


def _differ(given: Any, expected: Any) -> bool:
    is_other = given.shape != expected.shape or given.device != expected.device
    return is_other or bool((given.float() != expected).any())


@contextmanager
def _replaced(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module compute something else, for a while."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


def _window(config: Any) -> int:
    """Return the sliding window of a model, 0 if it has none that is shorter than the longest sequence."""
    window = getattr(config, "sliding_window", None) or 0
    if not getattr(config, "use_sliding_window", True) or window >= getattr(config, "max_position_embeddings", 0):
        return 0
    return window if "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"]) else 0


def unknown(named: str, why: str) -> ConfigError:
    """Return the refusal of a model that the learner cannot train."""
    return ConfigError(f"{named} has an architecture agentrl does not train yet: {why}. Choose another model.")
