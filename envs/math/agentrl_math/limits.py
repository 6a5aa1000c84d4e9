"""Sizes beyond which an answer is not looked at: bounds on work that needs no process to enforce them."""

MAX_SEARCHED_CHARS = 200_000
"""Only this much of the end of a response is searched for an answer."""
MAX_ANSWER_CHARS = 2_000
"""The longest gold of MATH has 159 characters."""
MAX_WHOLE_CHARS = 200
"""The longest response that is an answer and nothing else."""
MAX_READ_CHARS = 256
"""A longer answer is read by a worker, which can be killed, and never by the process that asks."""
MAX_PHRASE_CHARS = 120
"""A longer text is no phrase and no quantity in parts."""
MAX_DEPTH = 40
MAX_ITEMS = 200
FAST_BITS = 4_096
"""Rationals up to this size are computed in the calling process, in microseconds."""
EXACT_BITS = 2_000_000
"""Rationals up to this size are exact in the worker; 2006! has 19,000 bits."""


class LimitError(ValueError):
    """The text is larger or deeper than any answer."""


MEMORY_BYTES = 2 << 30
"""The address space of a worker."""
COMPUTE_S = 2.0
"""What a call may compute in workers: the comparison, and the gold by itself where that is not decided."""
GOLD_SHARE = 0.25
"""The part of it that is kept for the gold by itself."""
PATIENCE = 3
"""How many times as long it may take where the machine gives its process less than half of a processor."""
QUEUE_S = 30.0
"""How long a comparison may wait for a worker."""
START_S = 60.0
"""How long a worker may take to start, imports included."""
